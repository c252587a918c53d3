//! Structs: values in the form of lists, whose field types come from a declaration.

use core::fmt;

use crate::container::{ContainerError, Element, Place};
use crate::list::{List, ListEvent};

/// Why a value does not match its struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StructError {
    /// The declaration is not a list.
    Declaration(ContainerError),
    /// A field of the declaration has no type, or has a value.
    Field,
    /// The value is not a list.
    Value(ContainerError),
    /// The value has more elements than the struct has fields.
    TooMany,
}

impl fmt::Display for StructError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StructError::Declaration(error) => write!(f, "malformed struct declaration: {error}"),
            StructError::Field => f.write_str("a field of a struct has a type and no value"),
            StructError::Value(error) => write!(f, "malformed struct: {error}"),
            StructError::TooMany => f.write_str("a struct has more elements than fields"),
        }
    }
}

impl core::error::Error for StructError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            StructError::Declaration(error) | StructError::Value(error) => Some(error),
            _ => None,
        }
    }
}

/// The declaration of a struct: a list of typed, empty elements, such as `|=_nick|=_picture`.
///
/// ```
/// use weir_psyc::StructType;
///
/// let member = StructType::parse(b"|=_nick|=_picture|=_page")?;
/// let fields: Result<Vec<_>, _> = member.fields(b"| heron|4 \x89PNG").collect();
/// let fields = fields?;
/// assert_eq!(fields[1].name, b"_picture");
/// assert_eq!(fields[1].element.unwrap().value, b"\x89PNG");
/// assert!(fields[2].element.is_none());
/// # Ok::<(), weir_psyc::StructError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StructType<'t> {
    declaration: &'t [u8],
}

/// A field of a struct value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'t, 'v> {
    /// The type, which is also the name of the field.
    pub name: &'t [u8],
    /// The element. `None` if the value has fewer elements than the struct has fields.
    pub element: Option<Element<'v>>,
}

impl<'t> StructType<'t> {
    /// Checks the declaration `bytes`.
    pub fn parse(bytes: &'t [u8]) -> Result<StructType<'t>, StructError> {
        let ty = StructType { declaration: bytes };
        ty.names().try_for_each(|name| name.map(|_| ()))?;
        Ok(ty)
    }

    /// The types of the fields, in order.
    pub fn names(&self) -> impl Iterator<Item = Result<&'t [u8], StructError>> + use<'t> {
        List::new(self.declaration).map(|event| match event.map_err(StructError::Declaration)? {
            ListEvent::Elem(Element {
                ty: Some(name),
                value: b"",
                ..
            }) => Ok(name),
            _ => Err(StructError::Field),
        })
    }

    /// The fields of the struct value `bytes`, in order. An error is the last item.
    pub fn fields<'v>(&self, bytes: &'v [u8]) -> Fields<'t, 'v> {
        Fields {
            names: List::new(self.declaration),
            values: List::new(bytes),
            over: false,
        }
    }
}

/// Iterator over the fields of a struct value.
#[derive(Clone, Debug)]
pub struct Fields<'t, 'v> {
    names: List<'t>,
    values: List<'v>,
    over: bool,
}

impl<'t, 'v> Fields<'t, 'v> {
    /// An iterator that resumes where another iterator over the same declaration and value stopped.
    /// The declaration is checked field by field.
    pub fn resume(declaration: &'t [u8], bytes: &'v [u8], places: [Place; 2]) -> Fields<'t, 'v> {
        let [names, values] = places;
        Fields {
            names: List::resume(declaration, names),
            values: List::resume(bytes, values),
            over: false,
        }
    }

    /// The current positions of the iterator in the declaration and in the value.
    pub fn places(&self) -> [Place; 2] {
        [self.names.place(), self.values.place()]
    }

    fn element(&mut self) -> Result<Option<Element<'v>>, StructError> {
        loop {
            match self.values.next().transpose().map_err(StructError::Value)? {
                // A default type adds nothing to the declaration.
                Some(ListEvent::Type(_)) => {}
                Some(ListEvent::Elem(element)) => return Ok(Some(element)),
                None => return Ok(None),
            }
        }
    }

    fn field(&mut self) -> Result<Option<Field<'t, 'v>>, StructError> {
        match self
            .names
            .next()
            .transpose()
            .map_err(StructError::Declaration)?
        {
            Some(ListEvent::Elem(Element {
                ty: Some(name),
                value: b"",
                ..
            })) => Ok(Some(Field {
                name,
                element: self.element()?,
            })),
            Some(_) => Err(StructError::Field),
            None => match self.element()? {
                Some(_) => Err(StructError::TooMany),
                None => Ok(None),
            },
        }
    }
}

impl<'t, 'v> Iterator for Fields<'t, 'v> {
    type Item = Result<Field<'t, 'v>, StructError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let field = self.field().transpose();
        self.over = !matches!(field, Some(Ok(_)));
        field
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn declarations_have_typed_empty_fields() {
        assert!(StructType::parse(b"").is_ok());
        assert!(matches!(
            StructType::parse(b"|=_nick| x"),
            Err(StructError::Field)
        ));
        assert!(matches!(
            StructType::parse(b"|=_nick x"),
            Err(StructError::Field)
        ));
        assert!(matches!(
            StructType::parse(b"_t|=_nick"),
            Err(StructError::Field)
        ));
        assert!(matches!(
            StructType::parse(b"|=_nick|x"),
            Err(StructError::Declaration(_))
        ));
        let names: Vec<_> = StructType::parse(b"|=_a|=_b").unwrap().names().collect();
        assert_eq!(names, [Ok(&b"_a"[..]), Ok(b"_b")]);
    }

    #[test]
    fn a_value_with_more_elements_than_fields_is_rejected() {
        let ty = StructType::parse(b"|=_a|=_b").unwrap();
        let values = |bytes| -> Result<Vec<_>, StructError> {
            ty.fields(bytes)
                .map(|field| Ok(field?.element.map(|e| e.value.to_vec())))
                .collect()
        };
        assert_eq!(values(b"").unwrap(), [None, None]);
        assert_eq!(values(b"| 1").unwrap(), [Some(b"1".to_vec()), None]);
        assert_eq!(
            values(b"_t| 1| 2").unwrap(),
            [Some(b"1".to_vec()), Some(b"2".to_vec())]
        );
        assert_eq!(values(b"| 1| 2| 3"), Err(StructError::TooMany));
        assert!(matches!(values(b"| 1|9 2"), Err(StructError::Value(_))));
    }
}
