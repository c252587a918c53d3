//! Rendering packets.
//!
//! The renderer checks the packet and computes its exact size before it writes the first byte, so a
//! rejected packet leaves the output unchanged. It omits all optional bytes: leading zeros, an
//! empty data line, a length of 0. Rendering into a slice allocates nothing.

use core::fmt;

use alloc::vec::Vec;

use crate::class::is_keyword_byte;
use crate::output::{Output, SliceWriter, digits};
use crate::packet::{Length, Modifier, PacketSource};
use crate::scan::{LF, Mark, TAB, end_mark};

mod containers;

pub use containers::{Entry, Item, Step};

/// Why rendering failed. All errors except `BufferTooSmall` are mistakes of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenderError {
    /// A modifier has no name.
    NameMissing,
    /// A name contains a byte that is not a keyword byte.
    NameInvalid,
    /// A routing value contains LF.
    ValueNewline,
    /// A method contains a byte that is not a keyword byte.
    MethodInvalid,
    /// There is data but no method.
    MethodMissing,
    /// A type is empty, or contains a byte that is not a keyword byte.
    TypeInvalid,
    /// A raw content is not empty and does not end in LF.
    ContentUnterminated,
    /// A length is forbidden where the syntax needs one.
    LengthForbidden,
    /// The output slice is too small; nothing was written. Carries the size needed, in bytes.
    BufferTooSmall(u64),
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let RenderError::BufferTooSmall(size) = self {
            return write!(f, "the output needs {size} bytes");
        }
        f.write_str(self.sentence())
    }
}

impl RenderError {
    /// Its number in the C interface, from 1. Numbers are never reused.
    pub const fn number(self) -> u8 {
        match self {
            RenderError::NameMissing => 1,
            RenderError::NameInvalid => 2,
            RenderError::ValueNewline => 3,
            RenderError::MethodInvalid => 4,
            RenderError::MethodMissing => 5,
            RenderError::TypeInvalid => 6,
            RenderError::ContentUnterminated => 7,
            RenderError::LengthForbidden => 8,
            RenderError::BufferTooSmall(_) => 9,
        }
    }

    /// One sentence that describes the error.
    pub const fn sentence(self) -> &'static str {
        match self {
            RenderError::NameMissing => "a variable has no name",
            RenderError::NameInvalid => {
                "a variable name contains a byte that is not a keyword byte"
            }
            RenderError::ValueNewline => "a routing value contains a line feed",
            RenderError::MethodInvalid => "a method contains a byte that is not a keyword byte",
            RenderError::MethodMissing => "there is data but no method",
            RenderError::TypeInvalid => {
                "a type is empty or contains a byte that is not a keyword byte"
            }
            RenderError::ContentUnterminated => "a raw content does not end in a line feed",
            RenderError::LengthForbidden => "a length is forbidden where the syntax needs one",
            RenderError::BufferTooSmall(_) => "the output does not fit",
        }
    }
}

impl core::error::Error for RenderError {}

/// Renders packets, lists, dicts and updates under one length policy.
///
/// ```
/// use weir_psyc::{Modifier, Packet, Renderer};
///
/// let routing = [Modifier::set(b"_context", b"psyc://h/@a")];
/// let packet = Packet::new(&routing, &[], b"_message", b"hi");
/// let mut buffer = [0; 64];
/// let size = Renderer::new().render(&packet, &mut buffer)?;
/// assert_eq!(&buffer[..size], b":_context\tpsyc://h/@a\n\n_message\nhi\n|\n");
/// # Ok::<(), weir_psyc::RenderError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renderer {
    threshold: u64,
}

impl Default for Renderer {
    fn default() -> Renderer {
        Renderer::new()
    }
}

/// The size of a packet and of its parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSizes {
    /// The routing header: its modifier lines.
    pub routing: u64,
    /// The content through its last LF, which is also the value of the length. `None` if the packet
    /// has no content part.
    pub content: Option<u64>,
    /// Whether the length of the content is written.
    pub sized: bool,
    /// The whole packet.
    pub total: u64,
}

impl Renderer {
    /// Maximum length of a value that is written without a length by default, in bytes. A longer
    /// value is cheaper to skip than to search.
    pub const THRESHOLD: u64 = 9;

    /// A renderer with the default threshold.
    pub const fn new() -> Renderer {
        Renderer::with_threshold(Renderer::THRESHOLD)
    }

    /// A renderer that writes a length for each item longer than `threshold` bytes.
    pub const fn with_threshold(threshold: u64) -> Renderer {
        Renderer { threshold }
    }

    /// A renderer that writes a length only where the syntax needs it: the shortest output.
    pub const fn shortest() -> Renderer {
        Renderer::with_threshold(u64::MAX)
    }

    /// The exact size of `packet` in bytes; checks everything [`render`](Renderer::render) checks.
    pub fn size(self, packet: &impl PacketSource) -> Result<u64, RenderError> {
        self.sizes(packet).map(|sizes| sizes.total)
    }

    /// Renders `packet` to the start of `out` and returns its size in bytes. On an error, `out` is
    /// unchanged, even if the error is a buffer that is too small.
    pub fn render(self, packet: &impl PacketSource, out: &mut [u8]) -> Result<usize, RenderError> {
        let sizes = self.sizes(packet)?;
        into_slice(out, sizes.total, |out| self.write(packet, sizes, out))
    }

    /// Appends the rendered `packet` to `out`, which grows at most once. On an error, `out` is
    /// unchanged.
    pub fn append(self, packet: &impl PacketSource, out: &mut Vec<u8>) -> Result<(), RenderError> {
        let sizes = self.sizes(packet)?;
        into_vec(out, sizes.total, |out| self.write(packet, sizes, out));
        Ok(())
    }

    /// The exact size of one entity modifier line in bytes.
    pub fn modifier_size(self, modifier: &Modifier<'_>) -> Result<u64, RenderError> {
        let sized = self.check_entity(modifier)?;
        Ok(line_size(modifier, sized))
    }

    /// Renders one entity modifier line to the start of `out` and returns its size in bytes.
    pub fn render_modifier(
        self,
        modifier: &Modifier<'_>,
        out: &mut [u8],
    ) -> Result<usize, RenderError> {
        let sized = self.check_entity(modifier)?;
        into_slice(out, line_size(modifier, sized), |out| {
            write_line(modifier, sized, out);
        })
    }

    /// Whether an item is written with a length. `needed`: whether the syntax needs the length.
    #[inline]
    pub(crate) fn sized(
        self,
        bytes: &[u8],
        length: Length,
        needed: impl FnOnce(&[u8]) -> bool,
    ) -> Result<bool, RenderError> {
        match length {
            _ if bytes.is_empty() => Ok(false),
            Length::Force => Ok(true),
            Length::Auto => Ok(bytes.len() as u64 > self.threshold || needed(bytes)),
            Length::Forbid if needed(bytes) => Err(RenderError::LengthForbidden),
            Length::Forbid => Ok(false),
        }
    }

    fn check_entity(self, modifier: &Modifier<'_>) -> Result<bool, RenderError> {
        check_name(modifier.name)?;
        self.sized(modifier.value, modifier.length, has_line_feed)
    }

    /// The sizes of `packet` and of its parts in bytes; checks everything
    /// [`render`](Renderer::render) checks.
    pub fn sizes(self, packet: &impl PacketSource) -> Result<PacketSizes, RenderError> {
        let mut routing = 0;
        for modifier in packet.routing() {
            check_name(modifier.name)?;
            if has_line_feed(modifier.value) {
                return Err(RenderError::ValueNewline);
            }
            routing += line_size(&modifier, false);
        }
        let (content, sized) = match packet.raw() {
            Some(raw) => Renderer::raw_sizes(raw, packet.length())?,
            None => self.part_sizes(packet)?,
        };
        let mut total = routing + 2;
        if let Some(content) = content {
            total += 1 + content + if sized { digits(content) } else { 0 };
        }
        Ok(PacketSizes {
            routing,
            content,
            sized,
            total,
        })
    }

    /// The length of a raw content, and whether the length is written.
    fn raw_sizes(raw: &[u8], length: Length) -> Result<(Option<u64>, bool), RenderError> {
        if !raw.is_empty() && !raw.ends_with(b"\n") {
            return Err(RenderError::ContentUnterminated);
        }
        // A raw content is forwarded unchanged, so only the syntax decides, not the threshold.
        let sized =
            Renderer::shortest().sized(raw, length, |raw| end_mark(raw, Mark::Line).is_ok())?;
        Ok((Some(raw.len() as u64), sized))
    }

    /// The length of a content in parts, and whether the length is written.
    fn part_sizes(self, packet: &impl PacketSource) -> Result<(Option<u64>, bool), RenderError> {
        let mut size = 0;
        let mut sized = false;
        let length = packet.length();
        // Whether the content needs a length. Computed only if other rules do not decide, because
        // the check reads each byte.
        let mut needed = false;
        if packet.state().is_some() {
            size += 2;
        }
        for modifier in packet.entity() {
            let line = self.check_entity(&modifier)?;
            size += line_size(&modifier, line);
            sized |= line;
            if line && length == Length::Forbid {
                needed |= holds_delimiter(modifier.value, Mark::None);
            }
        }
        let (method, data) = (packet.method(), packet.data());
        if !method.iter().copied().all(is_keyword_byte) {
            return Err(RenderError::MethodInvalid);
        }
        if method.is_empty() && !data.is_empty() {
            return Err(RenderError::MethodMissing);
        }
        for line in [method, data] {
            if !line.is_empty() {
                size += line.len() as u64 + 1;
            }
        }
        sized |= data.len() as u64 > self.threshold;
        if length == Length::Forbid || (length == Length::Auto && !sized) {
            needed |= !data.is_empty() && holds_delimiter(data, Mark::Line);
        }
        let present = size != 0;
        let sized = match length {
            Length::Auto => sized || needed,
            Length::Force => present,
            Length::Forbid if needed => return Err(RenderError::LengthForbidden),
            Length::Forbid => false,
        };
        Ok((present.then_some(size), sized))
    }

    fn write(self, packet: &impl PacketSource, sizes: PacketSizes, out: &mut impl Output) {
        for modifier in packet.routing() {
            write_line(&modifier, false, out);
        }
        if let Some(content) = sizes.content {
            if sizes.sized {
                out.number(content);
            }
            out.byte(LF);
            match packet.raw() {
                Some(raw) => out.put(raw),
                None => self.write_parts(packet, out),
            }
        }
        out.put(b"|\n");
    }

    fn write_parts(self, packet: &impl PacketSource, out: &mut impl Output) {
        if let Some(state) = packet.state() {
            out.put(&[state.byte(), LF]);
        }
        for modifier in packet.entity() {
            // Must decide as the computation of the size did.
            let sized = self.sized(modifier.value, modifier.length, has_line_feed);
            write_line(&modifier, sized.unwrap_or_default(), out);
        }
        for line in [packet.method(), packet.data()] {
            if !line.is_empty() {
                out.put(line);
                out.byte(LF);
            }
        }
    }
}

/// Runs `write` on the start of `out` if `size` bytes fit there.
pub(crate) fn into_slice(
    out: &mut [u8],
    size: u64,
    write: impl FnOnce(&mut SliceWriter<'_>),
) -> Result<usize, RenderError> {
    let target = usize::try_from(size)
        .ok()
        .and_then(|size| out.get_mut(..size));
    let Some(target) = target else {
        return Err(RenderError::BufferTooSmall(size));
    };
    let written = target.len();
    let mut writer = SliceWriter::new(target);
    write(&mut writer);
    debug_assert!(
        !writer.overflow && writer.is_full(),
        "the size computed is the size written"
    );
    Ok(written)
}

/// Runs `write` on the end of `out`, with capacity for `size` more bytes.
pub(crate) fn into_vec(out: &mut Vec<u8>, size: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let before = out.len();
    out.reserve(usize::try_from(size).unwrap_or_default());
    write(out);
    debug_assert_eq!(
        (out.len() - before) as u64,
        size,
        "the size computed is the size written"
    );
}

fn check_name(name: &[u8]) -> Result<(), RenderError> {
    if name.is_empty() {
        return Err(RenderError::NameMissing);
    }
    if name.iter().copied().all(is_keyword_byte) {
        Ok(())
    } else {
        Err(RenderError::NameInvalid)
    }
}

fn has_line_feed(value: &[u8]) -> bool {
    memchr::memchr(LF, value).is_some()
}

/// Whether `bytes` and the LF written after them contain a delimiter.
fn holds_delimiter(bytes: &[u8], before: Mark) -> bool {
    !matches!(end_mark(bytes, before), Err(Mark::None | Mark::Line))
}

fn line_size(modifier: &Modifier<'_>, sized: bool) -> u64 {
    let value = modifier.value.len() as u64;
    let length = if sized { 1 + digits(value) } else { 0 };
    3 + modifier.name.len() as u64 + length + value
}

fn write_line(modifier: &Modifier<'_>, sized: bool, out: &mut impl Output) {
    out.byte(modifier.operator.byte());
    out.put(modifier.name);
    if sized {
        out.byte(b' ');
        out.number(modifier.value.len() as u64);
    }
    out.byte(TAB);
    out.put(modifier.value);
    out.byte(LF);
}
