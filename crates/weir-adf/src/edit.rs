//! Converts the edited text to a document.

use crate::check::check;
use crate::error::{AdfError, OrgError, OrgErrorKind};
use crate::options::{ORG_BYTES_MAX, Options};
use crate::reconcile::document;
use crate::render::{project, project_after};
use crate::text::read;
use serde_json::Value;

/// Converts an org text to a document. `base` is the document that [`to_org`](crate::to_org)
/// converted to the text before the edit, with equal `options`.
///
/// Unchanged blocks are returned as they are in `base`. A changed block keeps the parts that the
/// text does not show: identifiers, widths, unknown fields. For a text without a base, pass
/// [`empty`](crate::empty). Lines may end in CR LF.
///
/// # Errors
///
/// [`OrgError`] with the line of the fault.
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
    from_org_all(text, base, &[], options)
}

/// Converts an org text that combines the texts of several documents.
/// [`to_org_all`](crate::to_org_all) has written these texts: first that of `base`, then those of
/// `others`. The text can refer to parts of all documents. Unchanged blocks are those of `base`.
///
/// # Errors
///
/// As [`from_org`].
pub fn from_org_all(
    text: &str,
    base: &Value,
    others: &[&Value],
    options: &Options,
) -> Result<Value, OrgError> {
    if text.len() > ORG_BYTES_MAX {
        let (bytes, limit) = (text.len(), ORG_BYTES_MAX);
        return Err(OrgErrorKind::TooLarge { bytes, limit }.at(1));
    }
    check(base).map_err(|fault| OrgErrorKind::Base(fault).at(1))?;
    let mut projection = project(base, *options);
    if text == projection.text {
        return Ok(base.clone());
    }
    for other in others {
        check(other).map_err(|fault| OrgErrorKind::Base(fault).at(1))?;
        projection.table = project_after(other, *options, &projection.table).table;
    }
    let after = read(text, &projection.table, *options)?;
    let edited = document(base, &projection, &after);
    match check(&edited) {
        // The parts that the text refers to, and tables, have levels that its lines do not show.
        Err(AdfError::TooDeep { limit, .. }) => Err(OrgErrorKind::TooDeep { limit }.at(1)),
        _ => Ok(edited),
    }
}
