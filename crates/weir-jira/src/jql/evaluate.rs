//! Evaluates a condition on an issue, and orders issues.

use std::borrow::Cow;
use std::cmp::Ordering;

use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, Timestamp, ToSpan as _, Zoned};
use serde_json::Value;

use super::{Condition, Operand, Operator, Query};
use crate::time::{self, MINUTE_MS};

/// The environment of an evaluation.
#[derive(Clone, Debug)]
pub struct Context {
    /// Account id of `currentUser()`.
    pub me: String,
    /// The time, in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
    /// Time zone of the account, in which dates and the functions of days are read.
    pub zone: TimeZone,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            me: String::new(),
            now_ms: 0,
            zone: TimeZone::UTC,
        }
    }
}

/// Whether an issue satisfies the condition of a query. Without a condition, every issue does.
pub fn matches(query: &Query, issue: &Value, context: &Context) -> bool {
    let condition = query.condition.as_ref();
    condition.is_none_or(|condition| holds(condition, issue, context))
}

/// Sorts issues in the order of the query; equal ones by id, ascending.
pub fn sort(query: &Query, issues: &mut [&Value]) {
    issues.sort_by_cached_key(|issue| order_of(query, issue));
}

/// The sort key of an issue for a query. Only keys of one query can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// One part for each field: a number, a text, and whether the order is descending.
    parts: Vec<(i64, String, bool)>,
    id: i64,
}

impl Ord for OrderKey {
    fn cmp(&self, other: &Self) -> Ordering {
        for (a, b) in self.parts.iter().zip(&other.parts) {
            let order = (a.0, &a.1).cmp(&(b.0, &b.1));
            if order != Ordering::Equal {
                return if a.2 { order.reverse() } else { order };
            }
        }
        self.id.cmp(&other.id)
    }
}

impl PartialOrd for OrderKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The sort key of an issue for a query.
pub fn order_of(query: &Query, issue: &Value) -> OrderKey {
    let part = |(field, descending): &(String, bool)| {
        let (number, text) = order_key(issue, field);
        (number, text, *descending)
    };
    OrderKey {
        parts: query.order.iter().map(part).collect(),
        id: id_of(issue),
    }
}

/// The id of an issue as a number, by which issues with equal keys are sorted. An id that is not a
/// number counts as 0.
pub(crate) fn id_of(issue: &Value) -> i64 {
    number(&issue["id"])
}

/// The text of a document, of rich text or of any other value, with a space between parts.
pub fn plain_text(value: &Value) -> String {
    let mut text = String::new();
    collect(value, &mut text, 0);
    text
}

/// The deepest level of a document that is read.
const DEPTH_MAX: usize = 100;

fn collect(value: &Value, text: &mut String, depth: usize) {
    match value {
        Value::String(part) if depth == 0 => text.push_str(part),
        Value::Array(items) if depth < DEPTH_MAX => {
            for item in items {
                collect(item, text, depth + 1);
            }
        }
        Value::Object(node) if depth < DEPTH_MAX => {
            if let Some(Value::String(part)) = node.get("text") {
                text.push_str(part);
                text.push(' ');
            }
            if let Some(content) = node.get("content") {
                collect(content, text, depth + 1);
            }
        }
        _ => {}
    }
}

/// Nodes that show something without words.
const OBJECTS: &[&str] = &[
    "media",
    "mediaInline",
    "mention",
    "emoji",
    "date",
    "status",
    "inlineCard",
    "blockCard",
    "embedCard",
    "extension",
    "inlineExtension",
];

/// The text by which a query finds rich text or any other value. A space for a document that has no
/// words but shows an object, such as an image, because it is not empty.
pub(crate) fn searched_text(value: &Value) -> String {
    let text = plain_text(value);
    if text.is_empty() && shows_object(value, 0) {
        return " ".to_owned();
    }
    text
}

fn shows_object(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) if depth < DEPTH_MAX => {
            let mut items = items.iter();
            items.any(|item| shows_object(item, depth + 1))
        }
        Value::Object(node) if depth < DEPTH_MAX => {
            let kind = node.get("type").and_then(Value::as_str);
            let content = node.get("content");
            kind.is_some_and(|kind| OBJECTS.contains(&kind))
                || content.is_some_and(|content| shows_object(content, depth + 1))
        }
        _ => false,
    }
}

/// The sort key of a field: a number, then a text.
fn order_key(issue: &Value, field: &str) -> (i64, String) {
    // The order of dates is the same in every zone.
    if let Some(time) = date_of(issue, field, &TimeZone::UTC) {
        return (time, String::new());
    }
    match field {
        "id" => (number(&issue["id"]), String::new()),
        "key" | "issue" | "issuekey" => {
            let key = issue["key"].as_str().unwrap_or_default();
            let (project, count) = key.rsplit_once('-').unwrap_or((key, "0"));
            // Keys of a project are ordered by number, projects by name. The NUL orders a project
            // before others whose names begin with its name, as in the index.
            let count: i64 = count.parse().unwrap_or(0);
            (0, format!("{project}\0{count:012}"))
        }
        // The ids of the priorities of a new site ascend from the highest to the lowest priority.
        "priority" => {
            let id = number(&issue["fields"]["priority"]["id"]);
            let order = if id == 0 {
                i64::MIN
            } else {
                id.saturating_neg()
            };
            (order, first_text(issue, field))
        }
        "assignee" | "reporter" | "creator" => {
            let name = issue["fields"][field]["displayName"].as_str();
            (
                0,
                name.map_or_else(|| first_text(issue, field), str::to_owned),
            )
        }
        _ => match custom(issue, field).and_then(Value::as_f64) {
            Some(value) => (ordered_bits(value), String::new()),
            None => (0, first_text(issue, field)),
        },
    }
}

/// The first text of a field; an empty text for an empty field.
fn first_text(issue: &Value, field: &str) -> String {
    let first = texts(issue, field).into_iter().next();
    first.map(Cow::into_owned).unwrap_or_default()
}

/// An integer that is ordered as `value`.
fn ordered_bits(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    // The bits of negative numbers are in descending order.
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// The value of a custom field `cf[ID]`; `None` for any other field.
fn custom<'a>(issue: &'a Value, field: &str) -> Option<&'a Value> {
    let id = field.strip_prefix("cf[")?.strip_suffix(']')?;
    Some(&issue["fields"][format!("customfield_{id}").as_str()])
}

fn number(value: &Value) -> i64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| value.as_i64()).unwrap_or(0)
}

fn holds(condition: &Condition, issue: &Value, context: &Context) -> bool {
    match condition {
        Condition::And(parts) => parts.iter().all(|part| holds(part, issue, context)),
        Condition::Or(parts) => parts.iter().any(|part| holds(part, issue, context)),
        Condition::Empty { field, negated } => is_empty(issue, field) != *negated,
        Condition::Compare {
            field,
            operator,
            values,
        } => compared(issue, field, *operator, values, context),
    }
}

fn is_empty(issue: &Value, field: &str) -> bool {
    date_of(issue, field, &TimeZone::UTC).is_none() && texts(issue, field).is_empty()
}

fn compared(
    issue: &Value,
    field: &str,
    operator: Operator,
    values: &[Operand],
    context: &Context,
) -> bool {
    match operator {
        Operator::Contains => values.iter().any(|value| contains(issue, field, value)),
        Operator::ContainsNot => {
            !is_empty(issue, field) && !values.iter().any(|value| contains(issue, field, value))
        }
        // As in Jira: an empty field never satisfies `!=`.
        Operator::NotEqual => {
            !is_empty(issue, field)
                && !values
                    .iter()
                    .any(|value| equal(issue, field, value, context))
        }
        Operator::Equal => values
            .iter()
            .any(|value| equal(issue, field, value, context)),
        _ => values.iter().any(|value| {
            ordering(issue, field, value, context).is_some_and(|order| match operator {
                Operator::Greater => order == Ordering::Greater,
                Operator::GreaterEqual => order != Ordering::Less,
                Operator::Less => order == Ordering::Less,
                _ => order != Ordering::Greater,
            })
        }),
    }
}

fn ordering(issue: &Value, field: &str, value: &Operand, context: &Context) -> Option<Ordering> {
    if is_date(field) {
        let found = date_of(issue, field, &context.zone)?;
        return Some(found.cmp(&date_bound(field, value, context)?));
    }
    let Operand::Text(text) = value else {
        return None;
    };
    match field {
        "id" => Some(number(&issue["id"]).cmp(&text.parse().ok()?)),
        "key" | "issue" | "issuekey" => {
            let (project, count) = issue["key"].as_str()?.rsplit_once('-')?;
            let (other, bound) = text.rsplit_once('-')?;
            let same = project.eq_ignore_ascii_case(other);
            let (count, bound): (i64, i64) = (count.parse().ok()?, bound.parse().ok()?);
            same.then(|| count.cmp(&bound))
        }
        _ => {
            let found = texts(issue, field).into_iter().next()?;
            let (a, b) = (found.parse::<f64>().ok()?, text.parse::<f64>().ok()?);
            a.partial_cmp(&b)
        }
    }
}

fn equal(issue: &Value, field: &str, value: &Operand, context: &Context) -> bool {
    if *value == Operand::Empty {
        return is_empty(issue, field);
    }
    if is_date(field) {
        // Compares minutes, as Jira's literals have no seconds.
        let minute = |ms: i64| ms.div_euclid(MINUTE_MS);
        let found = date_of(issue, field, &context.zone).map(minute);
        return found.is_some() && found == date_bound(field, value, context).map(minute);
    }
    let Some(wanted) = wanted_text(value, context) else {
        return false;
    };
    // Jira sends the number 3 as 3.0.
    if let Some(found) = custom(issue, field).and_then(Value::as_f64) {
        let wanted = wanted.parse::<f64>().ok();
        return wanted.and_then(|wanted| found.partial_cmp(&wanted)) == Some(Ordering::Equal);
    }
    texts(issue, field)
        .iter()
        .any(|text| is_equal_ignoring_case(text, wanted))
}

/// The text with which a value of a comparison is compared; `None` for a function of time, and for
/// EMPTY.
pub(crate) fn wanted_text<'a>(value: &'a Operand, context: &'a Context) -> Option<&'a str> {
    match value {
        Operand::Function(name, _) => (name == "currentuser").then_some(context.me.as_str()),
        Operand::Text(text) => Some(text.as_str()),
        Operand::Empty => None,
    }
}

fn is_equal_ignoring_case(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    a.to_lowercase() == b.to_lowercase()
}

fn contains(issue: &Value, field: &str, value: &Operand) -> bool {
    let Operand::Text(wanted) = value else {
        return false;
    };
    let found = texts(issue, field).join(" ").to_lowercase();
    let words: Vec<&str> = found.split(|c: char| !c.is_alphanumeric()).collect();
    let wanted = wanted.to_lowercase();
    let mut parts = wanted
        .split(|c: char| !c.is_alphanumeric() && c != '*')
        .filter(|part| !part.is_empty());
    parts.all(|part| match part.strip_suffix('*') {
        Some(prefix) => words.iter().any(|word| word.starts_with(prefix)),
        None => words.contains(&part),
    })
}

pub(super) fn is_date(field: &str) -> bool {
    matches!(
        field,
        "created" | "updated" | "due" | "duedate" | "resolved" | "resolutiondate"
    )
}

/// The time of a date field; a date without a time begins at midnight in `zone`.
fn date_of(issue: &Value, field: &str, zone: &TimeZone) -> Option<i64> {
    let fields = &issue["fields"];
    match field {
        "created" | "updated" => time_of(&fields[field]),
        "due" | "duedate" => time::parse_literal(fields["duedate"].as_str()?, zone),
        "resolved" | "resolutiondate" => time_of(&fields["resolutiondate"]),
        _ => None,
    }
}

/// A time is a text, as from Jira, or a number of milliseconds, as in an index.
fn time_of(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| time::parse(value.as_str()?))
}

/// Whether a text is a date, a time or a duration.
pub(super) fn is_moment(text: &str) -> bool {
    text.parse::<i64>().is_ok()
        || time::parse_literal(text, &TimeZone::UTC).is_some()
        || time::parse_span(text).is_some()
}

/// The time with which a date field is compared. As in Jira, a due date is compared with days in
/// the time zone of the account: a time counts as the start of its day.
fn date_bound(field: &str, value: &Operand, context: &Context) -> Option<i64> {
    let at = moment(value, context)?;
    if !matches!(field, "due" | "duedate") {
        return Some(at);
    }
    let day = Timestamp::from_millisecond(at)
        .and_then(|time| time.to_zoned(context.zone.clone()).start_of_day());
    // A time outside of the calendar is before or after all days.
    Some(day.map_or(at, |day| day.timestamp().as_millisecond()))
}

fn moment(value: &Operand, context: &Context) -> Option<i64> {
    match value {
        Operand::Text(text) => {
            if let Ok(ms) = text.parse::<i64>() {
                return Some(ms);
            }
            time::parse_literal(text, &context.zone).or_else(|| {
                // As in Jira: the days of a duration without a function have 24 hours.
                let span = time::parse_span(text)?;
                let span = span.to_duration(SpanRelativeTo::days_are_24_hours());
                context
                    .now_ms
                    .checked_add(i64::try_from(span.ok()?.as_millis()).ok()?)
            })
        }
        Operand::Function(name, argument) => {
            let base = start(name, context)?;
            let moment = match argument {
                // Days and weeks of the calendar: a day can have 23 or 25 hours.
                Some(span) => base.checked_add(time::parse_span(span)?).ok()?,
                None => base,
            };
            Some(moment.timestamp().as_millisecond())
        }
        Operand::Empty => None,
    }
}

/// The time of a function without its argument, in the time zone of the account.
fn start(name: &str, context: &Context) -> Option<Zoned> {
    let now = Timestamp::from_millisecond(context.now_ms).ok()?;
    let now = now.to_zoned(context.zone.clone());
    match name {
        "now" => Some(now),
        "startofday" => now.start_of_day().ok(),
        "endofday" => now.end_of_day().ok(),
        "startofweek" => {
            // Weeks begin on Sunday.
            let days = now.weekday().to_sunday_zero_offset();
            now.checked_sub(days.days()).ok()?.start_of_day().ok()
        }
        "startofmonth" => now.first_of_month().ok()?.start_of_day().ok(),
        _ => None,
    }
}

/// All texts under which a field can be found. None of them is empty.
pub(crate) fn texts<'a>(issue: &'a Value, field: &str) -> Vec<Cow<'a, str>> {
    let fields = &issue["fields"];
    let mut found: Vec<Cow<'a, str>> = Vec::new();
    let mut add_parts = |value: &'a Value, names: &[&str]| {
        for name in names {
            match &value[*name] {
                Value::String(text) => found.push(text.into()),
                Value::Number(number) => found.push(number.to_string().into()),
                _ => {}
            }
        }
    };
    // Data Center has `name` in place of `accountId`.
    let person = &["accountId", "name", "displayName", "emailAddress"];
    match field {
        // As in Jira, these are names of one field.
        "key" | "issue" | "issuekey" | "id" => add_parts(issue, &["key", "id"]),
        "project" => add_parts(&fields["project"], &["key", "id", "name"]),
        "issuetype" | "type" => add_parts(&fields["issuetype"], &["name", "id"]),
        "status" | "priority" | "resolution" => add_parts(&fields[field], &["name", "id"]),
        "statuscategory" => {
            let category = &fields["status"]["statusCategory"];
            add_parts(category, &["key", "name"]);
            found.extend(category_id(&category["key"]).map(Cow::Borrowed));
        }
        "assignee" | "reporter" | "creator" => add_parts(&fields[field], person),
        "parent" => add_parts(&fields["parent"], &["key", "id"]),
        "labels" => found.extend(strings(&fields["labels"])),
        "component" | "fixversion" => {
            let name = if field == "component" {
                "components"
            } else {
                "fixVersions"
            };
            for item in fields[name].as_array().into_iter().flatten() {
                add_parts(item, &["name", "id"]);
            }
        }
        "summary" => add_parts(fields, &["summary"]),
        "description" => found.push(searched_text(&fields["description"]).into()),
        "comment" => found.extend(comments(fields)),
        "text" => {
            add_parts(fields, &["summary"]);
            found.push(searched_text(&fields["description"]).into());
            found.extend(comments(fields));
        }
        _ => {
            if let Some(value) = custom(issue, field) {
                add_custom_texts(value, &mut found);
            }
        }
    }
    found.retain(|text| !text.is_empty());
    found
}

/// The id of a category of statuses, which is equal at every site. An issue that was created in the
/// replica has only the key of its category.
fn category_id(key: &Value) -> Option<&'static str> {
    match key.as_str()? {
        "undefined" => Some("1"),
        "new" => Some("2"),
        "done" => Some("3"),
        "indeterminate" => Some("4"),
        _ => None,
    }
}

/// The parts of an object in a custom field under which it can be found: of an option, a person or
/// another named object. The first one orders issues.
const CUSTOM_PARTS: &[&str] = &[
    "value",
    "name",
    "id",
    "displayName",
    "key",
    "accountId",
    "emailAddress",
];

/// Adds the texts of the value of a custom field; of a list, those of all items.
fn add_custom_texts<'a>(value: &'a Value, found: &mut Vec<Cow<'a, str>>) {
    match value {
        Value::String(text) => found.push(text.into()),
        Value::Number(number) => found.push(number.to_string().into()),
        Value::Array(items) => {
            for item in items {
                add_custom_texts(item, found);
            }
        }
        Value::Object(_) if value["type"] == "doc" => found.push(searched_text(value).into()),
        Value::Object(_) => {
            for name in CUSTOM_PARTS {
                match &value[*name] {
                    Value::String(text) => found.push(text.into()),
                    Value::Number(number) => found.push(number.to_string().into()),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn strings(value: &Value) -> impl Iterator<Item = Cow<'_, str>> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(Cow::from))
}

fn comments(fields: &Value) -> impl Iterator<Item = Cow<'_, str>> {
    let comments = fields["comment"]["comments"]
        .as_array()
        .into_iter()
        .flatten();
    comments.map(|comment| searched_text(&comment["body"]).into())
}
