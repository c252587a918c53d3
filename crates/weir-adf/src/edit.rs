//! From the edited text to the document.

use crate::check::check;
use crate::error::{OrgError, OrgErrorKind};
use crate::options::{ORG_BYTES_MAX, Options};
use crate::reconcile::document;
use crate::render::project;
use crate::text::read;
use serde_json::Value;

/// Turns an org text into a document, given the document `base` that [`to_org`](crate::to_org) made
/// the text from before it was edited, with equal `options`.
///
/// Blocks that the edit left alone are returned as they are in `base`. A block that was changed keeps
/// what the text does not show: identifiers, widths, unknown fields. A text without a base is read
/// with [`empty`](crate::empty) as its base. Lines may end in CR LF.
///
/// # Errors
///
/// [`OrgError`] with the line at which the text is no document.
///
/// # Examples
///
/// ```
/// use weir_adf::{Options, from_org, to_org};
/// let base = serde_json::json!({"type": "doc", "version": 1, "content": [
///     {"type": "paragraph", "attrs": {"localId": "7"}, "content": [{"type": "text", "text": "old"}]}]});
/// let org = to_org(&base, &Options::default())?;
/// let edited = org.text.replace("old", "*new*");
/// let document = from_org(&edited, &base, &Options::default())?;
/// assert_eq!(document.pointer("/content/0/attrs/localId").unwrap(), "7");
/// assert_eq!(document.pointer("/content/0/content/0/marks/0/type").unwrap(), "strong");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn from_org(text: &str, base: &Value, options: &Options) -> Result<Value, OrgError> {
    if text.len() > ORG_BYTES_MAX {
        let (bytes, limit) = (text.len(), ORG_BYTES_MAX);
        return Err(OrgErrorKind::TooLarge { bytes, limit }.at(1));
    }
    check(base).map_err(|fault| OrgErrorKind::Base(fault).at(1))?;
    let projection = project(base, *options);
    if text == projection.text {
        return Ok(base.clone());
    }
    let after = read(text, &projection.table, *options)?;
    Ok(document(base, &projection, &after))
}
