//! Rendering lists, dicts, indexes, updates and packet ids.

use alloc::vec::Vec;

use super::{RenderError, Renderer, into_slice, into_vec};
use crate::class::{is_digit, is_keyword_byte};
use crate::container::SP;
use crate::operator::Operator;
use crate::output::{Output, digits};
use crate::packet::Length;
use crate::packet_id::PacketId;
use crate::scan::BAR;

/// An element to be rendered: of a list, a dict entry (as its value) or an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item<'a> {
    /// The type of the element, a keyword, if the element has its own.
    pub ty: Option<&'a [u8]>,
    /// The bytes of the element.
    pub value: &'a [u8],
    /// Whether to write the length.
    pub length: Length,
}

impl<'a> Item<'a> {
    /// An element without a type, whose renderer decides whether to write the length.
    pub const fn new(value: &'a [u8]) -> Item<'a> {
        Item {
            ty: None,
            value,
            length: Length::Auto,
        }
    }

    /// An element with a type.
    pub const fn typed(ty: &'a [u8], value: &'a [u8]) -> Item<'a> {
        Item {
            ty: Some(ty),
            value,
            length: Length::Auto,
        }
    }
}

/// An entry of a dict to be rendered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key, any bytes.
    pub key: &'a [u8],
    /// Whether to write the length of the key.
    pub key_length: Length,
    /// The value.
    pub value: Item<'a>,
}

impl<'a> Entry<'a> {
    /// An entry whose renderer decides whether to write the lengths.
    pub const fn new(key: &'a [u8], value: Item<'a>) -> Entry<'a> {
        Entry {
            key,
            key_length: Length::Auto,
            value,
        }
    }
}

/// A step of an index to be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A position in a list, from 0.
    Pos(u64),
    /// A field of a struct: a keyword.
    Field(&'a [u8]),
    /// An entry of a dict.
    Key(&'a [u8], Length),
}

/// An item that can compute its size for a renderer and write itself.
trait Render {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError>;
    /// Called only if `size` returned no error.
    fn write(&self, renderer: Renderer, out: &mut impl Output);
}

fn check_type(ty: Option<&[u8]>) -> Result<(), RenderError> {
    match ty {
        Some(ty) if ty.is_empty() || !ty.iter().copied().all(is_keyword_byte) => {
            Err(RenderError::TypeInvalid)
        }
        _ => Ok(()),
    }
}

/// `[=type] value`, and the byte that would end an unsized value.
struct Value<'a, 'b> {
    item: &'b Item<'a>,
    /// `|` in a list, `{` in a dict, none in an update.
    stop: Option<u8>,
    /// Whether a `=` precedes the type. In an update, the operator precedes it instead.
    equals: bool,
}

impl Value<'_, '_> {
    fn sized(&self, renderer: Renderer) -> Result<bool, RenderError> {
        let stop = self.stop;
        renderer.sized(self.item.value, self.item.length, |value| {
            stop.is_some_and(|stop| memchr::memchr(stop, value).is_some())
        })
    }

    /// Whether a colon precedes the length.
    fn colon(&self) -> bool {
        self.item.ty.is_some() || self.stop.is_none()
    }
}

impl Render for Value<'_, '_> {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError> {
        check_type(self.item.ty)?;
        let ty = self
            .item
            .ty
            .map_or(0, |ty| ty.len() as u64 + u64::from(self.equals));
        let value = self.item.value.len() as u64;
        let length = if self.sized(renderer)? {
            digits(value) + u64::from(self.colon())
        } else {
            0
        };
        Ok(ty + if value == 0 { 0 } else { length + 1 + value })
    }

    fn write(&self, renderer: Renderer, out: &mut impl Output) {
        if let Some(ty) = self.item.ty {
            if self.equals {
                out.byte(b'=');
            }
            out.put(ty);
        }
        if self.item.value.is_empty() {
            return;
        }
        if self.sized(renderer).unwrap_or_default() {
            if self.colon() {
                out.byte(b':');
            }
            out.number(self.item.value.len() as u64);
        }
        out.byte(SP);
        out.put(self.item.value);
    }
}

struct KeyPart<'a>(&'a [u8], Length);

impl KeyPart<'_> {
    fn sized(&self, renderer: Renderer) -> Result<bool, RenderError> {
        renderer.sized(self.0, self.1, |key| {
            key.first().copied().is_some_and(is_digit) || memchr::memchr(b'}', key).is_some()
        })
    }
}

impl Render for KeyPart<'_> {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError> {
        let key = self.0.len() as u64;
        Ok(2 + key
            + if self.sized(renderer)? {
                digits(key) + 1
            } else {
                0
            })
    }

    fn write(&self, renderer: Renderer, out: &mut impl Output) {
        out.byte(b'{');
        if self.sized(renderer).unwrap_or_default() {
            out.number(self.0.len() as u64);
            out.byte(SP);
        }
        out.put(self.0);
        out.byte(b'}');
    }
}

struct ListPart<'a, 'b>(Option<&'a [u8]>, &'b [Item<'a>]);

impl Render for ListPart<'_, '_> {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError> {
        check_type(self.0)?;
        let mut size = self.0.map_or(0, |ty| ty.len() as u64);
        for item in self.1 {
            size += 1 + Value {
                item,
                stop: Some(BAR),
                equals: true,
            }
            .size(renderer)?;
        }
        Ok(size)
    }

    fn write(&self, renderer: Renderer, out: &mut impl Output) {
        out.put(self.0.unwrap_or_default());
        for item in self.1 {
            out.byte(BAR);
            Value {
                item,
                stop: Some(BAR),
                equals: true,
            }
            .write(renderer, out);
        }
    }
}

const fn dict_value<'a, 'b>(item: &'b Item<'a>) -> Value<'a, 'b> {
    Value {
        item,
        stop: Some(b'{'),
        equals: true,
    }
}

struct DictPart<'a, 'b>(Option<&'a [u8]>, &'b [Entry<'a>]);

impl Render for DictPart<'_, '_> {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError> {
        check_type(self.0)?;
        let mut size = self.0.map_or(0, |ty| ty.len() as u64);
        for entry in self.1 {
            size += KeyPart(entry.key, entry.key_length).size(renderer)?;
            size += dict_value(&entry.value).size(renderer)?;
        }
        Ok(size)
    }

    fn write(&self, renderer: Renderer, out: &mut impl Output) {
        out.put(self.0.unwrap_or_default());
        for entry in self.1 {
            KeyPart(entry.key, entry.key_length).write(renderer, out);
            dict_value(&entry.value).write(renderer, out);
        }
    }
}

struct UpdatePart<'a, 'b> {
    index: &'b [Step<'a>],
    operator: Operator,
    item: &'b Item<'a>,
}

impl UpdatePart<'_, '_> {
    fn value(&self) -> Value<'_, '_> {
        Value {
            item: self.item,
            stop: None,
            equals: false,
        }
    }
}

impl Render for Step<'_> {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError> {
        match *self {
            Step::Pos(number) => Ok(1 + digits(number)),
            Step::Field(name) => {
                super::check_name(name)?;
                Ok(1 + name.len() as u64)
            }
            Step::Key(key, length) => KeyPart(key, length).size(renderer),
        }
    }

    fn write(&self, renderer: Renderer, out: &mut impl Output) {
        match *self {
            Step::Pos(number) => {
                out.byte(b'#');
                out.number(number);
            }
            Step::Field(name) => {
                out.byte(b'.');
                out.put(name);
            }
            Step::Key(key, length) => KeyPart(key, length).write(renderer, out),
        }
    }
}

impl Render for UpdatePart<'_, '_> {
    fn size(&self, renderer: Renderer) -> Result<u64, RenderError> {
        let mut size = 2;
        for step in self.index {
            size += step.size(renderer)?;
        }
        Ok(size + self.value().size(renderer)?)
    }

    fn write(&self, renderer: Renderer, out: &mut impl Output) {
        for step in self.index {
            step.write(renderer, out);
        }
        out.byte(SP);
        out.byte(self.operator.byte());
        self.value().write(renderer, out);
    }
}

/// The elements of a packet id, in wire order.
fn id_items<'a>(id: &PacketId<'a>) -> [Item<'a>; 5] {
    [id.context, id.source, id.target, id.counter, id.fragment].map(Item::new)
}

impl Renderer {
    fn part(self, part: &impl Render, out: &mut [u8]) -> Result<usize, RenderError> {
        into_slice(out, part.size(self)?, |out| part.write(self, out))
    }

    fn append_part(self, part: &impl Render, out: &mut Vec<u8>) -> Result<(), RenderError> {
        into_vec(out, part.size(self)?, |out| part.write(self, out));
        Ok(())
    }

    /// The exact size of a list in bytes.
    pub fn list_size(self, ty: Option<&[u8]>, items: &[Item<'_>]) -> Result<u64, RenderError> {
        ListPart(ty, items).size(self)
    }

    /// Renders a list with the default type `ty` to the start of `out` and returns its size. On
    /// any error, `out` is unchanged. This applies to all functions of this type.
    pub fn list(
        self,
        ty: Option<&[u8]>,
        items: &[Item<'_>],
        out: &mut [u8],
    ) -> Result<usize, RenderError> {
        self.part(&ListPart(ty, items), out)
    }

    /// Appends a rendered list to `out`.
    pub fn append_list(
        self,
        ty: Option<&[u8]>,
        items: &[Item<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        self.append_part(&ListPart(ty, items), out)
    }

    /// The exact size of one list element with the `|` in front, in bytes.
    pub fn element_size(self, item: &Item<'_>) -> Result<u64, RenderError> {
        self.list_size(None, core::slice::from_ref(item))
    }

    /// Renders one list element, with the `|` in front, to the start of `out` and returns its size.
    pub fn element(self, item: &Item<'_>, out: &mut [u8]) -> Result<usize, RenderError> {
        self.list(None, core::slice::from_ref(item), out)
    }

    /// Appends one rendered list element, with its leading `|`, to `out`. For building a list
    /// element by element.
    pub fn append_element(self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
        self.append_part(&ListPart(None, core::slice::from_ref(item)), out)
    }

    /// The exact size of a dict in bytes.
    pub fn dict_size(self, ty: Option<&[u8]>, entries: &[Entry<'_>]) -> Result<u64, RenderError> {
        DictPart(ty, entries).size(self)
    }

    /// Renders a dict with the default type `ty` to the start of `out` and returns its size.
    pub fn dict(
        self,
        ty: Option<&[u8]>,
        entries: &[Entry<'_>],
        out: &mut [u8],
    ) -> Result<usize, RenderError> {
        self.part(&DictPart(ty, entries), out)
    }

    /// Appends a rendered dict to `out`.
    pub fn append_dict(
        self,
        ty: Option<&[u8]>,
        entries: &[Entry<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        self.append_part(&DictPart(ty, entries), out)
    }

    /// The exact size of one key with its braces, in bytes.
    pub fn key_size(self, key: &[u8], length: Length) -> Result<u64, RenderError> {
        KeyPart(key, length).size(self)
    }

    /// Renders one key with its braces to the start of `out` and returns its size.
    pub fn key(self, key: &[u8], length: Length, out: &mut [u8]) -> Result<usize, RenderError> {
        self.part(&KeyPart(key, length), out)
    }

    /// The exact size of the value of a dict entry in bytes, without its key.
    pub fn dict_value_size(self, item: &Item<'_>) -> Result<u64, RenderError> {
        dict_value(item).size(self)
    }

    /// Renders the value of a dict entry to the start of `out` and returns its size.
    pub fn dict_value(self, item: &Item<'_>, out: &mut [u8]) -> Result<usize, RenderError> {
        self.part(&dict_value(item), out)
    }

    /// Appends the rendered value of a dict entry to `out`.
    pub fn append_dict_value(self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
        self.append_part(&dict_value(item), out)
    }

    /// Appends one rendered key with its braces to `out`.
    pub fn append_key(
        self,
        key: &[u8],
        length: Length,
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        self.append_part(&KeyPart(key, length), out)
    }

    /// The exact size of one step of an index in bytes.
    pub fn step_size(self, step: &Step<'_>) -> Result<u64, RenderError> {
        step.size(self)
    }

    /// Renders one step of an index to the start of `out` and returns its size. An update is its
    /// steps, followed by an update without steps.
    pub fn step(self, step: &Step<'_>, out: &mut [u8]) -> Result<usize, RenderError> {
        self.part(step, out)
    }

    /// The exact size of an update expression in bytes.
    pub fn update_size(
        self,
        index: &[Step<'_>],
        operator: Operator,
        item: &Item<'_>,
    ) -> Result<u64, RenderError> {
        UpdatePart {
            index,
            operator,
            item,
        }
        .size(self)
    }

    /// Renders an update expression to the start of `out` and returns its size.
    pub fn update(
        self,
        index: &[Step<'_>],
        operator: Operator,
        item: &Item<'_>,
        out: &mut [u8],
    ) -> Result<usize, RenderError> {
        self.part(
            &UpdatePart {
                index,
                operator,
                item,
            },
            out,
        )
    }

    /// Appends a rendered update expression to `out`.
    pub fn append_update(
        self,
        index: &[Step<'_>],
        operator: Operator,
        item: &Item<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        self.append_part(
            &UpdatePart {
                index,
                operator,
                item,
            },
            out,
        )
    }

    /// The exact size of a packet id in bytes.
    pub fn packet_id_size(id: &PacketId<'_>) -> Result<u64, RenderError> {
        ListPart(None, &id_items(id)).size(Renderer::shortest())
    }

    /// Renders a packet id to the start of `out` and returns its size in bytes. The threshold does
    /// not apply, so that equal ids have equal bytes.
    pub fn packet_id(id: &PacketId<'_>, out: &mut [u8]) -> Result<usize, RenderError> {
        Renderer::shortest().part(&ListPart(None, &id_items(id)), out)
    }

    /// Appends a rendered packet id to `out`.
    pub fn append_packet_id(id: &PacketId<'_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
        Renderer::shortest().append_part(&ListPart(None, &id_items(id)), out)
    }
}
