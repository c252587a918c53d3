//! XML contenders: quick-xml as a reader of events over a slice.
//!
//! The timed pass does not expand entities, which is the default of that reader, and does not
//! search for duplicate attributes. The content expands entities, so that it can be compared with
//! parsers that always expand them.

use std::fmt::Display;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};

use super::ContenderError;
use super::wire::{Parser, pair, part, touch};
use crate::protocol::Fields;

/// quick-xml events.
#[derive(Debug)]
pub struct QuickXml;

fn refused(error: impl Display) -> ContenderError {
    ContenderError::Refused(error.to_string())
}

/// The version that every form of quick-xml reports.
pub(super) fn versions() -> Fields {
    let version = env!("WEIR_LAB_QUICK_XML");
    Fields::from([("quick-xml".to_owned(), version.to_owned())])
}

impl Parser for QuickXml {
    fn versions(&self) -> Fields {
        versions()
    }

    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let mut reader = Reader::from_reader(packet);
        let mut sum = 0u64;
        loop {
            let added = match reader.read_event().map_err(refused)? {
                Event::Eof => return Ok(sum),
                Event::Start(tag) | Event::Empty(tag) => {
                    let mut added = touch(tag.name().as_ref().as_bytes());
                    for attribute in tag.attributes().with_checks(false) {
                        let attribute = attribute.map_err(refused)?;
                        added = added
                            .wrapping_add(touch(attribute.key.as_ref().as_bytes()))
                            .wrapping_add(touch(attribute.value.as_bytes()));
                    }
                    added
                }
                Event::Text(text) => touch(text.as_bytes()),
                Event::CData(text) => touch(text.as_bytes()),
                Event::GeneralRef(reference) => touch(reference.as_bytes()),
                _ => 0,
            };
            sum = sum.wrapping_add(added);
        }
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let mut reader = Reader::from_reader(packet);
        let mut sum = 0u64;
        let mut run = String::new();
        loop {
            match reader.read_event().map_err(refused)? {
                Event::Eof => return Ok(sum),
                Event::Text(text) => run.push_str(&text),
                Event::CData(text) => run.push_str(&text),
                Event::GeneralRef(reference) => {
                    run.push_str(&unescape(&format!("&{};", &*reference)).map_err(refused)?);
                }
                Event::Start(tag) | Event::Empty(tag) => {
                    sum = sum
                        .wrapping_add(text_content(&mut run))
                        .wrapping_add(tag_content(&tag)?);
                }
                Event::End(_) => sum = sum.wrapping_add(text_content(&mut run)),
                _ => {}
            }
        }
    }
}

/// Hash of the text collected so far, if it is more than white space.
fn text_content(run: &mut String) -> u64 {
    let text = std::mem::take(run);
    if text
        .bytes()
        .all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
    {
        return 0;
    }
    part(b't', text.as_bytes())
}

fn tag_content(tag: &BytesStart<'_>) -> Result<u64, ContenderError> {
    let mut sum = part(b'e', tag.name().as_ref().as_bytes());
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(refused)?;
        let value = unescape(&attribute.value).map_err(refused)?;
        sum = sum.wrapping_add(pair(
            b'a',
            attribute.key.as_ref().as_bytes(),
            value.as_bytes(),
        ));
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::content;
    use super::*;

    #[test]
    fn content_expands_entities_and_skips_white_space() {
        let packet = b"<a x='1&amp;2'>\n <b>H&#xF6;he &lt;4</b>\n</a>";
        let expected = part(b'e', b"a")
            .wrapping_add(pair(b'a', b"x", b"1&2"))
            .wrapping_add(part(b'e', b"b"))
            .wrapping_add(part(b't', "Höhe <4".as_bytes()));
        assert_eq!(content(QuickXml, packet), expected);
    }
}
