//! Reads and checks `vectors/errors.toml`.
//!
//! Invariants:
//! - Names and numbers are unique; numbers ascend and are in the range of their class; a retired
//!   number is not in use.
//! - Every field is one of its allowed values.
//! - No field has an implicit default.

use anyhow::{Context as _, bail, ensure};
use toml::Table;

/// The path of the table.
pub(crate) const PATH: &str = "vectors/errors.toml";

/// Name of each class, and its range of numbers.
pub(crate) const CLASSES: &[(&str, std::ops::RangeInclusive<u16>)] = &[
    ("invalid", 101..=199),
    ("error", 201..=299),
    ("refusal", 301..=399),
    ("store", 401..=499),
    ("client", 501..=599),
    ("call", 601..=699),
    ("query", 701..=799),
    ("internal", 901..=999),
];

/// Allowed values of `fault`.
pub(crate) const FAULTS: &[&str] = &["caller", "peer", "environment", "us"];

/// Allowed values of `retry`.
pub(crate) const RETRIES: &[&str] = &["yes", "after", "no"];

/// Exit codes in use; the documentation of the command explains each.
const EXITS: &[u16] = &[1, 2, 3, 4, 5, 6, 7, 65, 69, 70, 73, 74, 75, 77, 78, 130];

const FIELDS: &[&str] = &[
    "name",
    "number",
    "class",
    "fault",
    "retry",
    "http",
    "psyc",
    "exit",
    "exit_store",
    "sentence",
    "advice",
];

/// One error.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) number: u16,
    pub(crate) class: String,
    pub(crate) fault: String,
    pub(crate) retry: String,
    pub(crate) http: u16,
    pub(crate) psyc: String,
    pub(crate) exit: u16,
    pub(crate) exit_store: u16,
    pub(crate) sentence: String,
    pub(crate) advice: String,
}

/// Reads and checks the table of the project.
pub(crate) fn load() -> anyhow::Result<Vec<Entry>> {
    parse(&crate::tree::text(PATH)?).context(PATH)
}

/// Reads and checks a table.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    let table: Table = text.parse()?;
    let mut retired = Vec::new();
    for value in table
        .get("retired")
        .and_then(|v| v.as_array())
        .context("`retired` is missing")?
    {
        retired.push(
            value
                .as_integer()
                .context("`retired` contains a value that is not a number")?,
        );
    }
    let list = table
        .get("error")
        .and_then(|v| v.as_array())
        .context("no [[error]] entry")?;
    let mut entries: Vec<Entry> = Vec::new();
    for value in list {
        let entry = value.as_table().context("[[error]] is not a table")?;
        let name = entry
            .get("name")
            .and_then(|v| v.as_str())
            .unwrap_or("(no name)");
        let entry = entry_of(entry).with_context(|| format!("error {name}"))?;
        ensure!(
            !retired.contains(&i64::from(entry.number)),
            "{} is retired",
            entry.number
        );
        if let Some(last) = entries.last() {
            ensure!(last.number < entry.number, "{name}: numbers must ascend");
        }
        ensure!(
            entries.iter().all(|other| other.name != entry.name),
            "{name} occurs twice"
        );
        ensure!(
            entries.iter().all(|other| other.psyc != entry.psyc),
            "{} occurs twice",
            entry.psyc
        );
        entries.push(entry);
    }
    Ok(entries)
}

fn entry_of(table: &Table) -> anyhow::Result<Entry> {
    for field in table.keys() {
        ensure!(FIELDS.contains(&field.as_str()), "unknown field `{field}`");
    }
    let exit = number(table, "exit")?;
    let exit_store = if table.contains_key("exit_store") {
        number(table, "exit_store")?
    } else {
        exit
    };
    let entry = Entry {
        name: string(table, "name")?,
        number: number(table, "number")?,
        class: string(table, "class")?,
        fault: string(table, "fault")?,
        retry: string(table, "retry")?,
        http: number(table, "http")?,
        psyc: string(table, "psyc")?,
        exit,
        exit_store,
        sentence: string(table, "sentence")?,
        advice: string(table, "advice")?,
    };
    let word = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    ensure!(entry.name.chars().all(word), "`name` is not in upper case");
    let Some((_, range)) = CLASSES.iter().find(|(class, _)| *class == entry.class) else {
        bail!("unknown class `{}`", entry.class);
    };
    ensure!(
        range.contains(&entry.number),
        "{} is outside the class's range",
        entry.number
    );
    ensure!(
        FAULTS.contains(&entry.fault.as_str()),
        "unknown fault `{}`",
        entry.fault
    );
    ensure!(
        RETRIES.contains(&entry.retry.as_str()),
        "unknown retry `{}`",
        entry.retry
    );
    ensure!(
        (300..=599).contains(&entry.http),
        "`http` is not the status of a failure"
    );
    let family = entry.psyc.starts_with("_error_") || entry.psyc.starts_with("_failure_");
    ensure!(
        family,
        "`psyc` is neither in the family _error nor in _failure"
    );
    for code in [entry.exit, entry.exit_store] {
        ensure!(EXITS.contains(&code), "unknown exit code {code}");
    }
    for text in [&entry.sentence, &entry.advice] {
        ensure!(
            text.ends_with('.') && !text.contains('\n'),
            "`{text}` is not one sentence"
        );
    }
    Ok(entry)
}

fn string(table: &Table, field: &str) -> anyhow::Result<String> {
    let value = table
        .get(field)
        .with_context(|| format!("`{field}` is missing"))?;
    Ok(value
        .as_str()
        .with_context(|| format!("`{field}` is not a string"))?
        .to_owned())
}

fn number(table: &Table, field: &str) -> anyhow::Result<u16> {
    let value = table
        .get(field)
        .with_context(|| format!("`{field}` is missing"))?;
    let value = value
        .as_integer()
        .with_context(|| format!("`{field}` is not a number"))?;
    u16::try_from(value).with_context(|| format!("`{field}` is out of range"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    fn entry(name: &str, number: u16) -> String {
        format!(
            "[[error]]\nname = \"{name}\"\nnumber = {number}\nclass = \"refusal\"\n\
             fault = \"caller\"\nretry = \"no\"\nhttp = 400\npsyc = \"_error_{number}\"\n\
             exit = 1\nsentence = \"It is.\"\nadvice = \"Do.\"\n"
        )
    }

    fn check(text: &str, expected: &str) {
        let found = match super::parse(text) {
            Ok(entries) => format!("{} entries", entries.len()),
            Err(error) => format!("{error:#}"),
        };
        assert!(
            found.contains(expected),
            "{found:?} does not contain {expected:?}"
        );
    }

    #[test]
    fn wrong_tables_are_refused_with_the_reason() {
        let head = "retired = [305]\n";
        let first = entry("A", 301);
        check(&format!("{head}{first}{}", entry("B", 302)), "2 entries");
        check(&format!("{head}{first}{}", entry("B", 301)), "ascend");
        check(&format!("{head}{first}{}", entry("A", 302)), "occurs twice");
        check(&format!("{head}{}", entry("A", 305)), "retired");
        check(
            &format!("{head}{}", entry("A", 201)),
            "outside the class's range",
        );
        check(
            &format!("{head}{}", first.replace("caller", "nobody")),
            "unknown fault",
        );
        check(
            &format!("{head}{}", first.replace("It is.", "It is")),
            "not one sentence",
        );
        check(
            &format!("{head}{}", first.replace("exit = 1", "exit = 9")),
            "unknown exit",
        );
        check(
            &format!("{head}{}", first.replace("advice", "advise")),
            "unknown field",
        );
    }

    #[test]
    fn the_table_of_the_project_is_accepted() {
        assert!(super::load().unwrap().len() > 50);
    }
}
