//! Content negotiation: lists with q-values (RFC 9110, 12.4.2).

use super::head::{FieldName, Head};

/// Quality of an element in thousandths, from its parameters.
fn quality(parameters: &str) -> u32 {
    for parameter in parameters.split(';') {
        let Some((name, value)) = parameter.split_once('=') else {
            continue;
        };
        if name.trim().eq_ignore_ascii_case("q") {
            let (whole, part) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
            let digits = format!("{part:0<3}");
            let part: u32 = digits
                .get(..3)
                .and_then(|part| part.parse().ok())
                .unwrap_or(0);
            return match whole {
                "1" => 1000,
                "0" => part,
                _ => 0,
            };
        }
    }
    1000
}

fn split(element: &str) -> (&str, &str) {
    element
        .split_once(';')
        .map_or((element, ""), |(name, rest)| (name.trim(), rest))
}

/// Returns the media type that the client prefers; the first one on a tie, or if the client states
/// no preference. Returns `None` if the client accepts none of them.
pub(crate) fn media<T: Copy>(head: &Head, offers: &[(&str, T)]) -> Option<T> {
    if !head.has(FieldName::Accept) {
        return offers.first().map(|(_, value)| *value);
    }
    let mut best: Option<(u32, T)> = None;
    for (offer, value) in offers {
        let family = offer.split_once('/').map_or(*offer, |(family, _)| family);
        // The most specific element applies.
        let mut found: Option<(u8, u32)> = None;
        for element in head.list(FieldName::Accept) {
            let (name, parameters) = split(element);
            let exact = if name.eq_ignore_ascii_case(offer) {
                3
            } else if name
                .strip_suffix("/*")
                .is_some_and(|name| name.eq_ignore_ascii_case(family))
            {
                2
            } else if name == "*/*" {
                1
            } else {
                continue;
            };
            if found.is_none_or(|(other, _)| exact > other) {
                found = Some((exact, quality(parameters)));
            }
        }
        let q = found.map_or(0, |(_, q)| q);
        if q > 0 && best.is_none_or(|(other, _)| q > other) {
            best = Some((q, *value));
        }
    }
    best.map(|(_, value)| value)
}

/// Whether the client lists this media type by its full name, not by a wildcard.
pub(crate) fn names(head: &Head, media_type: &str) -> bool {
    head.list(FieldName::Accept).any(|element| {
        let (name, parameters) = split(element);
        name.eq_ignore_ascii_case(media_type) && quality(parameters) > 0
    })
}

/// Returns the content coding of `offers` that the client prefers; `Ok(None)` if it wants none of
/// them; `Err` if it refuses even the uncoded form.
pub(crate) fn coding<T: Copy>(head: &Head, offers: &[(&str, T)]) -> Result<Option<T>, ()> {
    let of = |name: &str| {
        let mut any = None;
        for element in head.list(FieldName::AcceptEncoding) {
            let (coding, parameters) = split(element);
            if coding.eq_ignore_ascii_case(name) {
                return Some(quality(parameters));
            }
            if coding == "*" {
                any = Some(quality(parameters));
            }
        }
        any
    };
    let mut best: Option<(u32, T)> = None;
    for (name, value) in offers {
        let q = of(name).unwrap_or(0);
        if q > 0 && best.is_none_or(|(other, _)| q > other) {
            best = Some((q, *value));
        }
    }
    let plain = of("identity").unwrap_or(1);
    match best {
        Some((q, value)) if q >= plain || plain == 1 => Ok(Some(value)),
        _ if plain > 0 => Ok(None),
        Some((_, value)) => Ok(Some(value)),
        None => Err(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::http::head::parse;

    fn head(fields: &str) -> Head {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        parse(text.as_bytes(), 20).unwrap().head
    }

    #[test]
    fn media_types_are_chosen() {
        let offers = [
            ("application/json", 1),
            ("application/x-ndjson", 2),
            ("text/event-stream", 3),
        ];
        for (accept, want) in [
            ("*/*", Some(1)),
            ("text/*", Some(3)),
            (
                "application/json;q=0.5, application/x-ndjson;q=0.8",
                Some(2),
            ),
            ("application/*;q=0.2, application/json;q=0", Some(2)),
            ("image/png", None),
            ("*/*;q=0.1, TEXT/event-stream", Some(3)),
            ("application/json;q=0", None),
        ] {
            assert_eq!(
                media(&head(&format!("Accept: {accept}")), &offers),
                want,
                "{accept}"
            );
        }
        assert_eq!(media(&head("X: y"), &offers), Some(1));
    }

    #[test]
    fn codings_are_chosen() {
        let offers = [("zstd", 1), ("gzip", 2)];
        for (accept, want) in [
            ("gzip", Ok(Some(2))),
            ("gzip, zstd", Ok(Some(1))),
            ("gzip;q=1, zstd;q=0.5", Ok(Some(2))),
            ("br", Ok(None)),
            ("*", Ok(Some(1))),
            ("gzip;q=0.5, identity", Ok(None)),
            ("identity;q=0", Err(())),
            ("br, *;q=0", Err(())),
            ("gzip;q=0", Ok(None)),
        ] {
            assert_eq!(
                coding(&head(&format!("Accept-Encoding: {accept}")), &offers),
                want,
                "{accept}"
            );
        }
        assert_eq!(coding(&head("X: y"), &offers), Ok(None));
    }
}
