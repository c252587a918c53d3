//! Uniforms: the addresses `psyc://host:port/resource#channel`.

use core::fmt;

use crate::class::{is_alpha, is_digit, is_host_byte, is_name_byte};

/// Maximum length of a host name, in bytes.
pub const HOST_BYTES_MAX: usize = 253;

/// The malformed part of a uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UniformError {
    /// The scheme is not `psyc:`, or is missing.
    Scheme = 1,
    /// No `//` after the scheme.
    Slashes = 2,
    /// The host is empty, is too long, or contains a byte that is not allowed in a host.
    Host = 3,
    /// A colon is not followed by a port from 1 to 65535.
    Port = 4,
    /// The text after the port is not a transport, or no transport is allowed here.
    Transport = 5,
    /// A byte that is not allowed in a resource.
    Resource = 6,
    /// A byte that is not allowed in a channel.
    Channel = 7,
}

impl UniformError {
    /// Its number in the C interface, from 1. Numbers are never reused.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The short name that the tools print.
    pub const fn name(self) -> &'static str {
        match self {
            UniformError::Scheme => "scheme",
            UniformError::Slashes => "slashes",
            UniformError::Host => "host",
            UniformError::Port => "port",
            UniformError::Transport => "transport",
            UniformError::Resource => "resource",
            UniformError::Channel => "channel",
        }
    }
}

impl fmt::Display for UniformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed uniform: {}", self.name())
    }
}

impl core::error::Error for UniformError {}

/// The kind of a uniform, which the first byte of its resource decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UniformKind {
    /// No resource: the node itself.
    Root = 1,
    /// `~`
    Person = 2,
    /// `@`
    Place = 3,
    /// `$`
    Service = 4,
    /// Any other resource.
    Other = 5,
}

impl UniformKind {
    /// Its number in the C interface, from 1. Numbers are never reused.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// `root`, the type byte, or `-`.
    pub const fn name(self) -> &'static str {
        match self {
            UniformKind::Root => "root",
            UniformKind::Person => "~",
            UniformKind::Place => "@",
            UniformKind::Service => "$",
            UniformKind::Other => "-",
        }
    }
}

/// A parsed `psyc:` uniform. All parts are slices of the input; nothing is case-folded or decoded.
///
/// ```
/// use weir_psyc::{Uniform, UniformKind};
///
/// let gauge = Uniform::parse(b"psyc://lock.example:4405d/@gauge#north")?;
/// assert_eq!(gauge.host(), b"lock.example");
/// assert_eq!((gauge.port_number(), gauge.transport()), (Some(4405), Some(&b"d"[..])));
/// assert_eq!((gauge.kind(), gauge.nick()), (UniformKind::Place, &b"gauge"[..]));
/// assert_eq!(gauge.entity(), b"psyc://lock.example:4405d/@gauge");
/// # Ok::<(), weir_psyc::UniformError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform<'a> {
    full: &'a [u8],
    scheme: usize,
    host: usize,
    host_end: usize,
    port_end: usize,
    root: usize,
    resource_end: usize,
}

/// A uniform of any scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyUniform<'a> {
    /// `psyc:`
    Psyc(Uniform<'a>),
    /// Any other scheme: `xmpp:`, `mailto:`, …
    Other {
        /// The bytes before the first colon: a letter, then letters, digits, `+ - .`.
        scheme: &'a [u8],
        /// The bytes after the colon.
        rest: &'a [u8],
    },
}

const PREFIX: &[u8] = b"psyc:";

impl<'a> Uniform<'a> {
    /// Parses a `psyc:` uniform in one pass. The scheme is compared without case.
    pub fn parse(full: &'a [u8]) -> Result<Uniform<'a>, UniformError> {
        let scheme = full.get(..PREFIX.len()).ok_or(UniformError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(PREFIX) {
            return Err(UniformError::Scheme);
        }
        let host = PREFIX.len() + 2;
        if full.get(PREFIX.len()..host) != Some(b"//") {
            return Err(UniformError::Slashes);
        }
        let host_end = run(full, host, is_host_byte);
        let bytes = host_end - host;
        let ends = matches!(full.get(host_end), None | Some(b':' | b'/'));
        if bytes == 0 || bytes > HOST_BYTES_MAX || !ends {
            return Err(UniformError::Host);
        }
        let (port_end, root) = match full.get(host_end) {
            Some(b':') => port(full, host_end + 1)?,
            _ => (host_end, host_end),
        };
        let mut resource_end = root;
        if full.get(root) == Some(&b'/') {
            resource_end = run(full, root + 1, is_name_byte);
            if full.get(resource_end) == Some(&b'#') {
                if run(full, resource_end + 1, is_name_byte) != full.len() {
                    return Err(UniformError::Channel);
                }
            } else if resource_end != full.len() {
                return Err(UniformError::Resource);
            }
        }
        let scheme = PREFIX.len() - 1;
        Ok(Uniform {
            full,
            scheme,
            host,
            host_end,
            port_end,
            root,
            resource_end,
        })
    }

    /// Parses a uniform of any scheme. The parts are parsed only for `psyc:`.
    pub fn parse_any(full: &'a [u8]) -> Result<AnyUniform<'a>, UniformError> {
        let colon = memchr::memchr(b':', full).ok_or(UniformError::Scheme)?;
        let scheme = full.get(..colon).unwrap_or_default();
        let rest = full.get(colon + 1..).unwrap_or_default();
        if scheme.eq_ignore_ascii_case(b"psyc") {
            return Uniform::parse(full).map(AnyUniform::Psyc);
        }
        let legal = |&byte: &u8| is_host_byte(byte) || byte == b'+';
        if !scheme.first().copied().is_some_and(is_alpha) || !scheme.iter().all(legal) {
            return Err(UniformError::Scheme);
        }
        Ok(AnyUniform::Other { scheme, rest })
    }

    fn part(&self, from: usize, to: usize) -> &'a [u8] {
        self.full.get(from..to).unwrap_or_default()
    }

    /// The whole uniform.
    pub fn full(&self) -> &'a [u8] {
        self.full
    }

    /// `psyc`, in the case that the sender used.
    pub fn scheme(&self) -> &'a [u8] {
        self.part(0, self.scheme)
    }

    /// `//`
    pub fn slashes(&self) -> &'a [u8] {
        self.part(PREFIX.len(), self.host)
    }

    /// The host, 1 to [`HOST_BYTES_MAX`] bytes.
    pub fn host(&self) -> &'a [u8] {
        self.part(self.host, self.host_end)
    }

    /// The port with its sign, if there is one.
    pub fn port(&self) -> Option<&'a [u8]> {
        let from = self.host_end + 1;
        (from < self.port_end).then(|| self.part(from, self.port_end))
    }

    /// The port without its sign.
    pub fn port_number(&self) -> Option<u16> {
        let port = self.port()?;
        let digits = port.strip_prefix(b"-").unwrap_or(port);
        let value = |number: u32, &digit: &u8| number * 10 + u32::from(digit.wrapping_sub(b'0'));
        u16::try_from(digits.iter().fold(0, value)).ok()
    }

    /// Whether the port is negative, which marks a peer that accepts no connections.
    pub fn is_unreachable(&self) -> bool {
        self.port().is_some_and(|port| port.starts_with(b"-"))
    }

    /// The transport: `c` TCP, `d` UDP, `s` TLS, `g` `GNUnet`.
    pub fn transport(&self) -> Option<&'a [u8]> {
        (self.port_end < self.root).then(|| self.part(self.port_end, self.root))
    }

    /// The slash after the root, if there is one.
    pub fn slash(&self) -> Option<&'a [u8]> {
        (self.root < self.full.len()).then(|| self.part(self.root, self.root + 1))
    }

    /// The bytes after the slash, without the channel; empty if nothing follows the slash.
    pub fn resource(&self) -> Option<&'a [u8]> {
        self.slash()
            .map(|_| self.part(self.root + 1, self.resource_end))
    }

    /// The bytes after `#`.
    pub fn channel(&self) -> Option<&'a [u8]> {
        let has_channel = self.resource_end < self.full.len();
        has_channel.then(|| self.part(self.resource_end + 1, self.full.len()))
    }

    /// From the host through the transport.
    pub fn host_port(&self) -> &'a [u8] {
        self.part(self.host, self.root)
    }

    /// From the start through the transport: the node.
    pub fn root(&self) -> &'a [u8] {
        self.part(0, self.root)
    }

    /// From the start through the resource, without the channel.
    pub fn entity(&self) -> &'a [u8] {
        self.part(0, self.resource_end)
    }

    /// From the slash to the end, if there is a slash.
    pub fn path(&self) -> Option<&'a [u8]> {
        self.slash().map(|_| self.part(self.root, self.full.len()))
    }

    /// From the host to the end.
    pub fn body(&self) -> &'a [u8] {
        self.part(self.host, self.full.len())
    }

    /// The resource without its type byte, or the whole resource if there is no type byte.
    pub fn nick(&self) -> &'a [u8] {
        let resource = self.resource().unwrap_or_default();
        match self.kind() {
            UniformKind::Person | UniformKind::Place | UniformKind::Service => {
                resource.get(1..).unwrap_or_default()
            }
            _ => resource,
        }
    }

    /// The kind of the uniform.
    pub fn kind(&self) -> UniformKind {
        match self.resource().unwrap_or_default().first() {
            None => UniformKind::Root,
            Some(b'~') => UniformKind::Person,
            Some(b'@') => UniformKind::Place,
            Some(b'$') => UniformKind::Service,
            Some(_) => UniformKind::Other,
        }
    }

    /// Each part with its name, in the order of the format page. An absent part is `None`.
    pub fn parts(&self) -> [(&'static str, Option<&'a [u8]>); 15] {
        let resource = self.resource();
        [
            ("scheme", Some(self.scheme())),
            ("slashes", Some(self.slashes())),
            ("host", Some(self.host())),
            ("port", self.port()),
            ("transport", self.transport()),
            ("slash", self.slash()),
            ("resource", resource),
            ("channel", self.channel()),
            ("host_port", Some(self.host_port())),
            ("root", Some(self.root())),
            ("entity", Some(self.entity())),
            ("path", self.path()),
            ("body", Some(self.body())),
            ("full", Some(self.full)),
            ("nick", resource.map(|_| self.nick())),
        ]
    }
}

/// The end of the bytes from `from` on that belong to one class.
fn run(bytes: &[u8], from: usize, class: fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|&&byte| class(byte)).count()
}

/// Parses the port and the transport. Returns the end of each.
fn port(full: &[u8], start: usize) -> Result<(usize, usize), UniformError> {
    let ends = |at: usize| matches!(full.get(at), None | Some(b'/'));
    if full.get(start) == Some(&b'g') {
        // No port number: the port ends at its start.
        return if ends(start + 1) {
            Ok((start, start + 1))
        } else {
            Err(UniformError::Transport)
        };
    }
    let digits = start + usize::from(full.get(start) == Some(&b'-'));
    let end = run(full, digits, is_digit);
    let number = match full.get(digits..end) {
        Some(digits @ [_, ..]) if digits.len() <= 5 => {
            digits.iter().fold(0, |number: u32, &digit| {
                number * 10 + u32::from(digit - b'0')
            })
        }
        _ => return Err(UniformError::Port),
    };
    if !(1..=u32::from(u16::MAX)).contains(&number) {
        return Err(UniformError::Port);
    }
    let root = end + usize::from(matches!(full.get(end), Some(b'c' | b'd' | b's')));
    if ends(root) {
        Ok((end, root))
    } else {
        Err(UniformError::Transport)
    }
}
