//! The printed lines of lists, dicts, indexes and updates.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use super::Escaped;
use crate::container::{ContainerError, Element};
use crate::dict::{Dict, DictEvent};
use crate::index::{Index, IndexStep};
use crate::list::ListStep;
use crate::update::{Update, UpdateEvent};

/// Prints the steps of a [`ListStream`](crate::ListStream), with the parts of an element joined.
#[derive(Debug, Default)]
pub struct ListPrinter {
    ty: Option<Vec<u8>>,
    value: Vec<u8>,
}

impl ListPrinter {
    /// A printer that stores the parts of one element at a time.
    pub fn new() -> ListPrinter {
        ListPrinter::default()
    }

    /// Prints `step`. Prints nothing for `NeedMore` and for parts.
    pub fn print(&mut self, step: &ListStep<'_>, out: &mut dyn Write) -> fmt::Result {
        match *step {
            ListStep::Type(ty) => writeln!(out, "list-type\t{}", Escaped(ty)),
            ListStep::Elem(element) => print_element("elem", &element, out),
            ListStep::ElemStart { ty, part, .. } => {
                self.ty = ty.map(<[u8]>::to_vec);
                self.value.clear();
                self.value.extend_from_slice(part);
                Ok(())
            }
            ListStep::ElemCont(part) => {
                self.value.extend_from_slice(part);
                Ok(())
            }
            ListStep::ElemEnd(part) => {
                self.value.extend_from_slice(part);
                let ty = self.ty.as_deref();
                print_element(
                    "elem",
                    &Element {
                        ty,
                        value: &self.value,
                        sized: true,
                    },
                    out,
                )
            }
            ListStep::End => writeln!(out, "end"),
            ListStep::NeedMore => Ok(()),
            ListStep::Error(error) => print_error(error, out),
        }
    }
}

/// Prints a dict value. Returns whether it is a dict.
pub fn print_dict(bytes: &[u8], out: &mut dyn Write) -> Result<bool, fmt::Error> {
    print_all(Dict::new(bytes), out, |event, out| match event {
        DictEvent::Type(ty) => writeln!(out, "dict-type\t{}", Escaped(ty)),
        DictEvent::Key(key) => writeln!(out, "key\t{}", Escaped(key.key)),
        DictEvent::Value(element) => print_element("value", &element, out),
    })
}

/// Prints an index that is a whole value. Returns whether it is an index.
pub fn print_index(bytes: &[u8], out: &mut dyn Write) -> Result<bool, fmt::Error> {
    print_all(Index::new(bytes), out, print_step)
}

/// Prints an update expression. Returns whether it is an update expression.
pub fn print_update(bytes: &[u8], out: &mut dyn Write) -> Result<bool, fmt::Error> {
    print_all(Update::new(bytes), out, |event, out| match event {
        UpdateEvent::Step(step) => print_step(step, out),
        UpdateEvent::Op { operator, ty } => {
            writeln!(out, "op\t{operator}\t{}", Escaped(ty.unwrap_or_default()))
        }
        UpdateEvent::Value { value, .. } => writeln!(out, "value\t{}", Escaped(value)),
    })
}

fn print_all<E>(
    events: impl Iterator<Item = Result<E, ContainerError>>,
    out: &mut dyn Write,
    print: impl Fn(E, &mut dyn Write) -> fmt::Result,
) -> Result<bool, fmt::Error> {
    for event in events {
        match event {
            Ok(event) => print(event, out)?,
            Err(error) => {
                print_error(error, out)?;
                return Ok(false);
            }
        }
    }
    writeln!(out, "end")?;
    Ok(true)
}

fn print_step(step: IndexStep<'_>, out: &mut dyn Write) -> fmt::Result {
    match step {
        IndexStep::Pos(number) => writeln!(out, "pos\t{number}"),
        IndexStep::Field(name) => writeln!(out, "field\t{}", Escaped(name)),
        IndexStep::Key(key) => writeln!(out, "key\t{}", Escaped(key.key)),
    }
}

fn print_element(word: &str, element: &Element<'_>, out: &mut dyn Write) -> fmt::Result {
    let ty = Escaped(element.ty.unwrap_or_default());
    writeln!(out, "{word}\t{ty}\t{}", Escaped(element.value))
}

fn print_error(error: ContainerError, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "error\t{}", error.kind.name())
}
