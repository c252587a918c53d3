//! Converts text of the user to the value of a field.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::client::CUT;
use crate::error::{JiraError, Result};
use crate::meta::{self, FieldInfo, FieldKind};
use crate::op::{self, SetEdit};
use crate::replica::Replica;
use crate::time;

/// Limit on the characters of a summary, and of any line of text.
const LINE_CHARS_MAX: usize = 255;
/// Limit on the characters of rich text.
const RICH_CHARS_MAX: usize = 32_767;

/// The parsed value of an assignment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParsedValue {
    Single(Value),
    Set(SetEdit),
}

fn field_error(info: &FieldInfo, what: impl Into<String>) -> JiraError {
    JiraError::Field {
        field: info.id.clone(),
        what: what.into(),
    }
}

/// Parses `text` as a value of the field; `current` is the value before. The items of a list whose
/// names are still in the text stay, because a name can have a comma.
pub(crate) fn parse(
    replica: &Replica,
    info: &FieldInfo,
    text: &str,
    current: &Value,
) -> Result<ParsedValue> {
    let add = current.as_array().cloned().unwrap_or_default();
    let items = SetEdit {
        add,
        ..SetEdit::default()
    };
    parse_corrected(replica, info, text, current, &items)
}

/// Parses the corrected text of a value. The items of a list before the correction are `previous`:
/// those whose names are still in the text stay, because a name can have a comma, and two items can
/// have one name.
pub(crate) fn parse_corrected(
    replica: &Replica,
    info: &FieldInfo,
    text: &str,
    current: &Value,
    previous: &SetEdit,
) -> Result<ParsedValue> {
    if let FieldKind::List(item) = &info.kind {
        let item = |name: &str| parse_one(replica, info, item, name, &Value::Null);
        return parse_list(info, item, split_list(text, previous), current).map(ParsedValue::Set);
    }
    if text.trim().is_empty() && info.kind != FieldKind::Rich {
        if info.required || info.id == "summary" {
            return Err(field_error(info, "it cannot be empty"));
        }
        return Ok(ParsedValue::Single(Value::Null));
    }
    parse_one(replica, info, &info.kind, text, current).map(ParsedValue::Single)
}

fn parse_one(
    replica: &Replica,
    info: &FieldInfo,
    kind: &FieldKind,
    text: &str,
    current: &Value,
) -> Result<Value> {
    match kind {
        FieldKind::Text => {
            if text.contains('\n') || text.chars().count() > LINE_CHARS_MAX {
                let what = format!("it must be one line of at most {LINE_CHARS_MAX} characters");
                return Err(field_error(info, what));
            }
            if info.id == "labels" && text.contains(char::is_whitespace) {
                return Err(field_error(info, format!("the label {text:?} has a space")));
            }
            Ok(text.into())
        }
        FieldKind::Rich => rich(text, current).map_err(|what| field_error(info, what)),
        FieldKind::Number => {
            let number = text
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite());
            let number =
                number.ok_or_else(|| field_error(info, format!("{text:?} is not a number")))?;
            Ok(json!(number))
        }
        FieldKind::Date => {
            let valid = text.len() == 10 && time::parse_literal(text, &TimeZone::UTC).is_some();
            let bad = || field_error(info, format!("{text:?} is not a date YYYY-MM-DD"));
            valid.then(|| text.into()).ok_or_else(bad)
        }
        FieldKind::Time => {
            // A time without an offset is in the time zone of the account, as in a query.
            let zone = meta::zone(replica)?;
            let ms = time::parse(text).or_else(|| time::parse_literal(text, &zone));
            let ms = ms.ok_or_else(|| field_error(info, format!("{text:?} is not a time")))?;
            Ok(time::format_in(ms, &zone).into())
        }
        FieldKind::Person => person(replica, text).map_err(|what| field_error(info, what)),
        FieldKind::Issue => {
            let key = text.trim().to_uppercase();
            let valid = key
                .rsplit_once(['-', '+'])
                .is_some_and(|(project, number)| {
                    !project.is_empty() && number.parse::<u64>().is_ok()
                });
            let bad = || field_error(info, format!("{text:?} is not a key of an issue"));
            valid.then(|| json!({"key": key})).ok_or_else(bad)
        }
        FieldKind::Named | FieldKind::Choice => choice(info, kind, text),
        FieldKind::List(_) | FieldKind::Other => {
            Err(field_error(info, "values of this kind cannot be edited"))
        }
    }
}

/// Converts org text to rich text that replaces `current`.
pub(crate) fn rich(text: &str, current: &Value) -> std::result::Result<Value, String> {
    merged_rich(text, current, &[])
}

/// As [`rich`], for a text that can also refer to parts of other documents.
pub(crate) fn merged_rich(
    text: &str,
    current: &Value,
    others: &[&Value],
) -> std::result::Result<Value, String> {
    if text.chars().count() > RICH_CHARS_MAX {
        return Err(format!("it is longer than {RICH_CHARS_MAX} characters"));
    }
    let empty = weir_adf::empty();
    let base = if op::is_document(current) {
        current
    } else {
        &empty
    };
    if base.to_string().contains(CUT) {
        return Err("it is nested too deeply to be changed here: change it at the site".to_owned());
    }
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    weir_adf::from_org_all(text, base, others, &weir_adf::Options::default())
        .map_err(|error| error.to_string())
}

fn choice(info: &FieldInfo, kind: &FieldKind, text: &str) -> Result<Value> {
    let text = text.trim();
    let found = info
        .options
        .iter()
        .find(|option| meta::name_of(option).eq_ignore_ascii_case(text) || option["id"] == text);
    match found {
        Some(found) => Ok(plain(found)),
        None if info.options.is_empty() && *kind == FieldKind::Choice => Ok(json!({"value": text})),
        None if info.options.is_empty() => Ok(json!({"name": text})),
        None => {
            let what = format!(
                "{text:?} is not possible; choose from {}",
                info.allowed.join(", ")
            );
            Err(field_error(info, what))
        }
    }
}

/// An allowed value without its descriptive parts.
fn plain(option: &Value) -> Value {
    let kept = ["id", "name", "value", "key"].into_iter();
    let kept = kept.filter_map(|name| Some((name.to_owned(), option.get(name)?.clone())));
    Value::Object(kept.collect())
}

/// Finds the person with this name: `me`, `none`, an account id, an e-mail address or a name.
pub(crate) fn person(replica: &Replica, text: &str) -> std::result::Result<Value, String> {
    let text = text.trim();
    if text.is_empty() || text == "none" {
        return Ok(Value::Null);
    }
    let people = meta::people(replica).map_err(|error| error.to_string())?;
    if text == "me" {
        let me = people.first();
        return me
            .map(|me| me.raw.clone())
            .ok_or_else(|| "your account is unknown before the first pull".into());
    }
    let exact = people.iter().find(|person| person.account == text);
    let exact = exact.map(|person| person.raw.clone());
    let called = |person: &&meta::Person| {
        person.name.eq_ignore_ascii_case(text) || person.email.eq_ignore_ascii_case(text)
    };
    let mut found: Vec<&meta::Person> = people.iter().filter(called).collect();
    if found.is_empty() {
        let part = text.to_lowercase();
        found = people
            .iter()
            .filter(|person| person.name.to_lowercase().contains(&part))
            .collect();
    }
    match (exact, found.as_slice()) {
        (Some(exact), _) => Ok(exact),
        (None, [one]) => Ok(one.raw.clone()),
        (None, []) => Err(format!(
            "no known person has the name {text:?}; a pull reads the list of people once a day"
        )),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|person| person.name.as_str()).collect();
            Err(format!("{text:?} is not unique: {}", names.join(", ")))
        }
    }
}

/// A part of the text of a list: `+` or `-` or nothing, a name, and the previous item with that
/// name.
type Part<'t> = (&'t str, &'t str, Option<Value>);

/// Splits the text of a list at commas. The name of a previous item is not split. Each previous
/// item is used once; among equal names, an item with the sign of the part comes first.
fn split_list<'t>(text: &'t str, previous: &SetEdit) -> Vec<Part<'t>> {
    let add = previous.add.iter().map(|item| ("+", item));
    let remove = previous.remove.iter().map(|item| ("-", item));
    let signed = add.chain(remove);
    let mut unused: Vec<(&str, String, &Value)> = signed
        .map(|(sign, item)| (sign, op::text(item), item))
        .collect();
    let between = |letter: char| letter == ',' || letter.is_whitespace();
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(between);
    while !rest.is_empty() {
        let (sign, after) = match rest.split_at_checked(1) {
            Some((sign @ ("+" | "-"), after)) => (sign, after.trim_start()),
            _ => ("", rest),
        };
        let found = unused
            .iter()
            .enumerate()
            .filter_map(|(at, (own, name, _))| {
                let tail = after.strip_prefix(name.as_str())?.trim_start();
                let ends = !name.is_empty() && (tail.is_empty() || tail.starts_with(','));
                // The longest name leaves the shortest tail.
                ends.then_some((tail, *own != sign, at))
            });
        let found = found.min_by_key(|(tail, differs, _)| (tail.len(), *differs));
        let (tail, item) = match found {
            Some((tail, _, at)) => (tail, Some(unused.remove(at).2.clone())),
            None => (after.find(',').map_or("", |at| after.split_at(at).1), None),
        };
        let name = after.strip_suffix(tail).unwrap_or(after).trim_end();
        parts.push((sign, name, item));
        rest = tail.trim_start_matches(between);
    }
    parts
}

/// Parses a list: `a,b` replaces the whole list; `+a,-b` adds and removes. `item` parses a name.
fn parse_list(
    info: &FieldInfo,
    item: impl Fn(&str) -> Result<Value>,
    parts: Vec<Part<'_>>,
    current: &Value,
) -> Result<SetEdit> {
    let before: Vec<Value> = current.as_array().cloned().unwrap_or_default();
    let within = |items: &[Value], wanted: &Value| items.iter().any(|item| op::same(item, wanted));
    let steps = parts.iter().any(|(sign, ..)| !sign.is_empty());
    let mut edit = SetEdit::default();
    let mut whole = Vec::new();
    for (sign, name, known) in parts {
        if steps && sign.is_empty() {
            let what = format!("{name:?} needs + or -, as the others have");
            return Err(field_error(info, what));
        }
        let item = known.map_or_else(|| item(name), Ok)?;
        match sign {
            "+" => edit.add.push(item),
            "-" => edit.remove.push(item),
            _ => whole.push(item),
        }
    }
    if steps {
        edit.add.retain(|item| !within(&before, item));
        edit.remove.retain(|item| within(&before, item));
    } else {
        let added = whole.iter().filter(|item| !within(&before, item));
        edit.add = added.cloned().collect();
        let gone = before.iter().filter(|item| !within(&whole, item));
        edit.remove = gone.cloned().collect();
    }
    Ok(edit)
}
