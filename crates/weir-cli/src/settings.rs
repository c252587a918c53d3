//! Resolves the settings of a call. The precedence is flag, environment, context, file, default.
//! Each value has its origin.
//!
//! The file is `--config`, else `./weir.toml`, else `$XDG_CONFIG_HOME/weir/weir.toml`, else
//! `/etc/weir/weir.toml`. Only the first one that exists is read.
//!
//! Invariants:
//! - An unknown key is an error.
//! - Every value has a known origin.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use weir::limits::VALUE_BYTES_MAX;
use weir::units::{self, UnitError};
use weir::{Consistency, Durability, ErrorCode};

use crate::context_file::{Contexts, home, line_and_column, syntax_error};
use crate::credentials::{self, Credentials};
use crate::output::Format;
use crate::report::{self, Failure};

/// The default place of a store.
pub(crate) const AT_DEFAULT: &str = "./weir-data";
/// The keys that a file may have.
pub(crate) const KEYS: [&str; 4] = ["at", "output", "durability", "serve"];

/// A value and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Sourced<T> {
    /// The value.
    pub(crate) value: T,
    /// "flag", "environment", "context NAME", the file's path, or "default".
    pub(crate) origin: String,
}

/// The settings in effect.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The place of the store.
    pub(crate) at: Sourced<String>,
    /// Output format; `None`: depends on command and terminal.
    pub(crate) output: Sourced<Option<Format>>,
    /// When a write is acknowledged.
    pub(crate) durability: Sourced<Durability>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    /// Credentials for a server, and the authority to trust.
    pub(crate) credentials: Credentials,
    /// The credentials for display: key, value, origin. Contains no secret.
    pub(crate) shown_credentials: Vec<(&'static str, Option<String>, String)>,
    /// The table `[serve]` of the file: key, value as text, position.
    pub(crate) serve: Vec<(String, String, String)>,
}

/// Values as given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--at`.
    pub(crate) at: Option<String>,
    /// `--output`.
    pub(crate) output: Option<Format>,
    /// `--durability`.
    pub(crate) durability: Option<Durability>,
    /// `--token-file`, `--server-ca`, `--client-cert`, `--client-key`.
    pub(crate) credentials: Credentials,
}

impl Settings {
    /// Reads environment, context and file.
    pub(crate) fn resolve(flags: &Flags) -> anyhow::Result<Self> {
        let json = |format: Option<Format>| matches!(format, Some(Format::Json | Format::Jsonl));
        // Errors in the settings are reported in this format too.
        report::as_json(json(flags.output));
        let file = config_path(flags.config.as_deref());
        let values = match &file {
            Some(path) => Values::read(path)?,
            None => Values::default(),
        };
        let contexts = Contexts::load()?;
        let context = contexts.current();
        let origin = file.as_ref().map(|path| path.display().to_string());
        let from_file = |text: &Option<String>| Some((text.clone()?, origin.clone()?));
        let from_context = |text: Option<String>| {
            let name = &context.as_ref()?.0;
            Some((text?, format!("context {name}")))
        };
        let (at, output_of_context) = match &context {
            Some((_, context)) => (Some(context.at.clone()), context.output.clone()),
            None => (None, None),
        };
        let at = flag_or_variable(flags.at.clone(), "at", "WEIR_AT")?
            .or_else(|| from_context(at))
            .or_else(|| from_file(&values.at))
            .unwrap_or_else(|| (AT_DEFAULT.to_owned(), "default".to_owned()));
        let output = flags.output.map(|format| format.name().to_owned());
        let output = flag_or_variable(output, "output", "WEIR_OUTPUT")?
            .or_else(|| from_context(output_of_context))
            .or_else(|| from_file(&values.output));
        let output = match output {
            Some((text, origin)) => {
                let value =
                    Some(format(&text).map_err(|why| setting_error("output", &origin, &why))?);
                Sourced { value, origin }
            }
            None => Sourced::default(None),
        };
        report::as_json(json(output.value));
        let named = match flags.durability {
            Some(_) => None,
            None => {
                variable("durability", "WEIR_DURABILITY")?.or_else(|| from_file(&values.durability))
            }
        };
        let durability = match (flags.durability, named) {
            (Some(value), _) => Sourced {
                value,
                origin: "flag".to_owned(),
            },
            (None, Some((text, origin))) => {
                let value =
                    durability(&text).map_err(|why| setting_error("durability", &origin, &why))?;
                Sourced { value, origin }
            }
            (None, None) => Sourced::default(Durability::Group),
        };
        let (value, origin) = at;
        // The credentials of a context apply to its own place only.
        let used = context.filter(|(name, _)| origin == format!("context {name}"));
        let of_context = used.map(|(_, context)| context.credentials);
        let layers = [
            ("flag", flags.credentials.clone()),
            ("environment", Credentials::of_environment()),
            (&*origin, of_context.unwrap_or_default()),
        ];
        let shown_credentials = credentials::shown(&layers);
        let [flag, environment, context] = layers.map(|(_, credentials)| credentials);
        let credentials = flag.or(environment).or(context);
        Ok(Self {
            at: Sourced { value, origin },
            output,
            durability,
            credentials,
            shown_credentials,
            file,
            serve: values.serve,
        })
    }
}

impl<T> Sourced<T> {
    fn default(value: T) -> Self {
        let origin = "default".to_owned();
        Self { value, origin }
    }
}

fn flag_or_variable(
    flag: Option<String>,
    key: &str,
    name: &str,
) -> anyhow::Result<Option<(String, String)>> {
    match flag {
        Some(text) => Ok(Some((text, "flag".to_owned()))),
        None => variable(key, name),
    }
}

/// The text of an environment variable that sets `key`, and its origin. `None` if the variable is
/// not set or empty.
pub(crate) fn variable(key: &str, name: &str) -> anyhow::Result<Option<(String, String)>> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let origin = format!("environment {name}");
    match value.into_string() {
        Ok(text) => Ok(Some((text, origin))),
        // The default would be another store, or a server without its identities.
        Err(_) => Err(setting_error(key, &origin, "the value is not UTF-8")),
    }
}

fn setting_error(key: &str, origin: &str, why: &str) -> anyhow::Error {
    let what = format!("cannot use {key} from {origin}");
    Failure::new(ErrorCode::BadOption, what).because(why).into()
}

fn format(text: &str) -> Result<Format, String> {
    Format::from_str(text, true).map_err(|_| format!("{text} is not an output format"))
}

/// Parses a durability level: `group`, `each`, `interval:TIME` or `memory`.
pub(crate) fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once(':') {
        None if text == "group" => Ok(Durability::Group),
        None if text == "each" => Ok(Durability::Each),
        None if text == "memory" => Ok(Durability::Memory),
        Some(("interval", time)) => match duration(time) {
            Ok(time) => Ok(Durability::Interval(time)),
            Err(error) => Err(error.to_string()),
        },
        _ => Err(format!(
            "{text} is not a durability level; choose group, each, interval:TIME or memory"
        )),
    }
}

/// A durability level as [`durability`] parses it.
pub(crate) fn durability_text(level: Durability) -> String {
    match level {
        Durability::Interval(time) => format!("interval:{}ms", time.as_millis()),
        level => level.name().to_owned(),
    }
}

/// Parses a consistency level: `local`, `leader` or `linear`.
pub(crate) fn consistency(text: &str) -> Result<Consistency, String> {
    let read = Consistency::from_name(text.as_bytes());
    read.ok_or_else(|| format!("{text} is not a consistency level; choose local, leader or linear"))
}

/// Parses a duration with its unit, for a flag.
pub(crate) fn duration(text: &str) -> Result<Duration, UnitError> {
    units::duration(text)
}

/// Parses a number of bytes, for a flag.
pub(crate) fn size(text: &str) -> Result<u64, UnitError> {
    units::size(text)
}

/// Parses the limit of values: a size up to the largest one that the store accepts.
pub(crate) fn value_bytes_max(text: &str) -> Result<usize, String> {
    let bytes = size(text).map_err(|error| error.to_string())?;
    let bytes = usize::try_from(bytes).ok();
    let fits = bytes.filter(|bytes| *bytes <= VALUE_BYTES_MAX);
    fits.ok_or_else(|| {
        let most = VALUE_BYTES_MAX >> 20;
        format!("{text} is over the limit of {most}MiB for a value")
    })
}

/// Parses a count, from 0 on.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{text} is not a whole number from 0 to {}", u64::MAX))
}

fn config_path(given: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = given {
        return Some(path.to_owned());
    }
    let places = [
        Some(PathBuf::from("weir.toml")),
        home().map(|home| home.join("weir.toml")),
        Some(PathBuf::from("/etc/weir/weir.toml")),
    ];
    places.into_iter().flatten().find(|path| path.is_file())
}

/// The content of a file.
#[derive(Debug, Default)]
struct Values {
    at: Option<String>,
    output: Option<String>,
    durability: Option<String>,
    serve: Vec<(String, String, String)>,
}

impl Values {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display().to_string();
        let failure = || {
            Failure::new(ErrorCode::BadOption, format!("cannot use the file {shown}"))
                .advise("correct the file, then run `weir config check`")
        };
        let text = std::fs::read_to_string(path).map_err(|error| failure().because(error))?;
        Self::parse(&text).map_err(|why| failure().because(why).into())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table = toml::de::DeTable::parse(text).map_err(|error| syntax_error(text, &error))?;
        let mut values = Self::default();
        for (key, value) in table.get_ref() {
            let at = line_and_column(text, key.span().start);
            let name: &str = key.get_ref();
            if name == "serve" {
                values.serve = serve_settings(text, value)?;
                continue;
            }
            let target = match name {
                "at" => &mut values.at,
                "output" => &mut values.output,
                "durability" => &mut values.durability,
                _ => {
                    let near = nearest_key(name);
                    return Err(format!(
                        "line {at}: there is no key {name}; did you mean {near}?"
                    ));
                }
            };
            let text = value.get_ref().as_str();
            let text = text.ok_or_else(|| format!("line {at}: {name} must be a string"))?;
            let checked = match name {
                "output" => format(text).map(drop),
                "durability" => durability(text).map(drop),
                _ => Ok(()),
            };
            checked.map_err(|why| format!("line {at}: {why}"))?;
            *target = Some(text.to_owned());
        }
        Ok(values)
    }
}

/// Reads the table `[serve]`: strings, integers, booleans and lists of strings, as the flags of
/// `weir serve` accept them.
fn serve_settings(
    text: &str,
    table: &toml::Spanned<toml::de::DeValue<'_>>,
) -> Result<Vec<(String, String, String)>, String> {
    let at = |span: std::ops::Range<usize>| line_and_column(text, span.start);
    let table_at = at(table.span());
    let table = table.get_ref().as_table();
    let table = table.ok_or_else(|| format!("line {table_at}: serve must be a table"))?;
    let mut keys = Vec::new();
    for (key, value) in table {
        let at = at(key.span());
        let name: &str = key.get_ref();
        let wrong =
            || format!("line {at}: {name} must be a string, a number, true, false or a list");
        let value = match value.get_ref() {
            toml::de::DeValue::String(text) => text.to_string(),
            toml::de::DeValue::Boolean(value) => value.to_string(),
            toml::de::DeValue::Integer(number) => number.to_string(),
            toml::de::DeValue::Array(list) => {
                let texts = list.iter().map(|item| item.get_ref().as_str());
                let texts: Option<Vec<&str>> = texts.collect();
                texts.ok_or_else(wrong)?.join(",")
            }
            _ => return Err(wrong()),
        };
        keys.push((name.to_owned(), value, format!("line {at}")));
    }
    Ok(keys)
}

/// The known key that is most similar to a name.
fn nearest_key(name: &str) -> &'static str {
    let distance = |key: &&str| {
        let mut row: Vec<usize> = (0..=key.len()).collect();
        for (i, a) in name.bytes().enumerate() {
            let mut diagonal = i;
            let mut left = i + 1;
            for (cell, b) in row.iter_mut().skip(1).zip(key.bytes()) {
                let changed = diagonal + usize::from(a != b);
                diagonal = *cell;
                left = changed.min(left + 1).min(diagonal + 1);
                *cell = left;
            }
            if let Some(first) = row.first_mut() {
                *first = i + 1;
            }
        }
        row.last().copied().unwrap_or(usize::MAX)
    };
    KEYS.into_iter().min_by_key(distance).unwrap_or("at")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_unknown_key_its_position_and_the_nearest_key() {
        let check = |text: &str, expect: &str| {
            let error = Values::parse(text).err().unwrap_or_default();
            assert!(error.contains(expect), "{error}");
        };
        check("at = \"x\"\n  durabilty = \"group\"\n", "line 2 column 3");
        check("durabilty = \"group\"", "did you mean durability?");
        check("outptu = 1", "did you mean output?");
        check("at = 3", "at must be a string");
        check("durability = \"slow\"", "slow is not a durability level");
        check("at = ", "line 1");
        assert!(Values::parse("at = \"./x\"\noutput = \"json\"").is_ok());
    }

    #[test]
    fn levels_and_limits_have_units() {
        let level = Durability::Interval(Duration::from_millis(5));
        assert_eq!(durability("interval:5ms"), Ok(level));
        assert_eq!(durability_text(level), "interval:5ms");
        let error = durability("interval:5").err().unwrap_or_default();
        assert!(error.contains("5 has no unit"), "{error}");
        assert_eq!(value_bytes_max("64MiB"), Ok(64 << 20));
        let error = value_bytes_max("67108865").err().unwrap_or_default();
        assert!(error.contains("limit of 64MiB"), "{error}");
    }
}
