//! Decides which items are usable, and treats the others as `--on-error` requires.

use std::path::PathBuf;
use std::str::FromStr;

use serde_json::value::RawValue;
use weir::{IntentionLimits, limits};

use super::dead_letters::DeadLetterFile;
use super::input_item::InputItem;
use super::key_path::KeyPath;
use super::{ImportArgs, input_name};
use crate::caller::Caller;
use crate::item::{Item, Items, ParseError, bad_line};
use crate::report::{FailureContext, note};

/// Maximum number of skipped items that are reported individually.
const NAMED_MAX: u64 = 10;

/// What to do with an unusable item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnError {
    /// Stop the import.
    Stop,
    /// Skip the item.
    Skip,
    /// Write the item to a file, and continue.
    DeadLetter(PathBuf),
}

impl FromStr for OnError {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("stop", _) => Ok(Self::Stop),
            ("skip", _) => Ok(Self::Skip),
            (_, Some(("dead-letter", file))) if !file.is_empty() => {
                Ok(Self::DeadLetter(file.into()))
            }
            _ => Err("choose stop, skip or dead-letter=FILE".to_owned()),
        }
    }
}

/// A usable item.
pub(super) enum UsableItem<'a> {
    /// A value with its key.
    Value {
        /// Key; empty for none.
        key: Vec<u8>,
        /// Value.
        value: &'a [u8],
    },
    /// A record in the form that `export` prints.
    Record(Box<Item<'a>>, &'a [u8]),
}

/// Checks items.
pub(super) struct ItemValidator<'a> {
    args: &'a ImportArgs,
    limits: IntentionLimits,
    /// Name of the import, for dead letters; `None` if the import cannot be resumed.
    import: Option<String>,
    quiet: bool,
    broken: u64,
    letters: Option<DeadLetterFile>,
}

impl<'a> ItemValidator<'a> {
    /// Creates a validator for these arguments.
    pub(super) fn new(args: &'a ImportArgs, caller: &Caller, import: Option<String>) -> Self {
        Self {
            args,
            limits: caller.limits,
            quiet: caller.quiet,
            import,
            broken: 0,
            letters: None,
        }
    }

    /// Number of unusable items.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Returns the item if it is usable.
    pub(super) fn item<'i>(
        &mut self,
        item: &'i [u8],
        found: &InputItem,
    ) -> anyhow::Result<Option<UsableItem<'i>>> {
        let result = match &found.problem {
            Some(why) => Err(ParseError::from(why.clone())),
            None => self.validate(item),
        };
        let error = match result {
            Ok(result) => return Ok(Some(result)),
            Err(error) => error,
        };
        self.broken += 1;
        let (line, column) = error.position_in_input(found.line, found.column);
        if self.args.on_error != OnError::Stop && self.broken <= NAMED_MAX {
            let more = if self.broken == NAMED_MAX {
                "; further invalid items are only counted"
            } else {
                ""
            };
            let why = &error.why;
            note(
                self.quiet,
                &format!("skipped line {line} column {column}: {why}{more}"),
            );
        }
        match &self.args.on_error {
            OnError::Stop => {
                let input = input_name(&self.args.file);
                let failure = bad_line(&input, line, column, &error.why);
                let advice =
                    "correct the item and run the same command again, or use --on-error skip";
                Err(failure.advise(advice).into())
            }
            OnError::Skip => Ok(None),
            OnError::DeadLetter(_) if self.args.dry_run => Ok(None),
            OnError::DeadLetter(path) => {
                let failed = || format!("cannot write {}", path.display());
                let letters = if let Some(letters) = &mut self.letters {
                    letters
                } else {
                    let opened = DeadLetterFile::open(path, self.import.as_deref());
                    self.letters.insert(opened.failed(failed)?)
                };
                let whole = found.problem.is_none();
                letters
                    .write((line, column), &error.why, item, whole)
                    .failed(failed)?;
                Ok(None)
            }
        }
    }

    /// Makes the dead letters durable.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        match &mut self.letters {
            Some(letters) => letters
                .sync()
                .failed(|| "cannot write the dead letters".to_owned()),
            None => Ok(()),
        }
    }

    fn validate<'i>(&self, item: &'i [u8]) -> Result<UsableItem<'i>, ParseError> {
        if self.args.records {
            let record = Item::parse(item)?;
            let mut one = Items::default();
            one.item(&record)?;
            if one.last_is_nothing() {
                return Err("the record has neither a value nor `\"delete\":true`"
                    .to_owned()
                    .into());
            }
            if one.has_conditions() {
                return Err(
                    "an import does not support conditions, but the record has `expect`"
                        .to_owned()
                        .into(),
                );
            }
            let [key, value, meta] = one.last_sizes();
            self.check_sizes(key, value, meta)?;
            return Ok(UsableItem::Record(Box::new(record), item));
        }
        let raw: &RawValue =
            serde_json::from_slice(item).map_err(|error| ParseError::json(&error))?;
        let key = self.args.key.as_ref().map(|path: &KeyPath| path.key(raw));
        let key = key.transpose()?.unwrap_or_default();
        self.check_sizes(key.len(), item.len(), 0)?;
        Ok(UsableItem::Value { key, value: item })
    }

    fn check_sizes(&self, key: usize, value: usize, meta: usize) -> Result<(), String> {
        let checks = [
            ("key", key, self.limits.key_bytes_max),
            ("value", value, self.limits.value_bytes_max),
            ("metadata", meta, limits::META_BYTES_MAX),
        ];
        for (what, bytes, max) in checks {
            if bytes > max {
                return Err(format!(
                    "the {what} of {bytes} bytes is over the limit of {max}"
                ));
            }
        }
        Ok(())
    }
}
