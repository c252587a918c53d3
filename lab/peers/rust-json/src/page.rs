//! The pages: each item has a deep payload after (or before) its key.
//!
//! `deep(0, w)` is `"value"`; `deep(d, w)` is an array of `w` objects `{"key": deep(d-1, w)}`. `6 by 10`
//! is the 17 MB payload of the study that the experiment repeats.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A page, or the pages of many sources.
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    pub(crate) parts: Vec<Bytes>,
    /// Bytes that a pass uses besides the page.
    pub(crate) peak: u64,
}

/// Creates the pages of the parameters. With `sources`, each source has a page. The pages have
/// `objects` items in all, whose keys alternate between the sources, or come in runs of `run`.
pub(crate) fn make(fields: &BTreeMap<&str, &str>) -> Option<Page> {
    let number = |name| -> Option<u64> { fields.get(name)?.parse().ok() };
    let Some(sources) = number("sources") else {
        let bytes = Bytes::from(page(fields)?);
        let parts = Vec::new();
        return Some(Page {
            bytes,
            parts,
            peak: 0,
        });
    };
    let (objects, run) = (number("objects")?, number("run").unwrap_or(1));
    let part = |source: u64| {
        let items = (0..objects / sources).map(|item| {
            let key = (item / run * sources + source) * run + item % run;
            format!("{{\"o\":{key}}}")
        });
        Bytes::from(format!("[{}]", items.collect::<Vec<_>>().join(",")))
    };
    Some(Page {
        bytes: Bytes::new(),
        parts: (0..sources).map(part).collect(),
        peak: 0,
    })
}

/// Parameters: `objects`, `depth`, `width`; `key_last`; `title`, the text before each title.
fn page(fields: &BTreeMap<&str, &str>) -> Option<Vec<u8>> {
    let number = |name| -> Option<u32> { fields.get(name)?.parse().ok() };
    let (items, depth, width) = (number("objects")?, number("depth")?, number("width")?);
    let last = fields.get("key_last") == Some(&"true");
    let title = match fields.get("title") {
        Some(&"escapes") => "\\\"q\\\\ ",
        Some(&"non-ascii") => "é€😀 ",
        _ => "",
    };
    let mut payload = Vec::new();
    deep(depth, width, &mut payload);
    let mut out = vec![b'['];
    for item in 0..items {
        if item > 0 {
            out.push(b',');
        }
        let head = format!(
            "{{\"id\":\"{item}\",\"title\":\"{title}Partition 1 / Item {item} / Order {item}\",\"huge_data\":"
        );
        if last {
            out.extend(format!("{{\"payload\":{head}").bytes());
            out.extend(&payload);
            out.extend(format!("}},\"order\":{item}}}").bytes());
        } else {
            out.extend(format!("{{\"order\":{item},\"payload\":{head}").bytes());
            out.extend(&payload);
            out.extend(b"}}");
        }
    }
    out.push(b']');
    Some(out)
}

fn deep(depth: u32, width: u32, out: &mut Vec<u8>) {
    if depth == 0 {
        out.extend(b"\"value\"");
        return;
    }
    out.push(b'[');
    for index in 0..width {
        if index > 0 {
            out.push(b',');
        }
        out.extend(b"{\"key\":");
        deep(depth - 1, width, out);
        out.push(b'}');
    }
    out.push(b']');
}
