//! The file of contexts: `contexts.toml` in the user's configuration folder.
//!
//! Invariants:
//! - The file contains no secret.
//! - Of two commands that change the file, the later one reads the change of the earlier one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

use serde::{Deserialize, Serialize};
use weir::ErrorCode;

use crate::credentials::Credentials;
use crate::report::{Failure, FailureContext, note};

/// A place with a name.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Context {
    /// The place: a directory or the address of a server.
    pub(crate) at: String,
    /// Output format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// Credentials for a server.
    #[serde(flatten)]
    pub(crate) credentials: Credentials,
    /// Keys written by a newer weir; preserved unchanged.
    #[serde(flatten)]
    pub(crate) others: toml::Table,
}

/// All contexts of the file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Contexts {
    pub(crate) current: Option<String>,
    pub(crate) previous: Option<String>,
    #[serde(default, rename = "contexts")]
    pub(crate) by_name: BTreeMap<String, Context>,
    /// Keys written by a newer weir; preserved unchanged.
    #[serde(flatten)]
    others: toml::Table,
}

/// The exclusive right to change the file.
#[derive(Debug)]
pub(crate) struct ContextsLock {
    /// Closing the folder releases the lock.
    _folder: File,
}

/// The folder for configuration files of the user: `$XDG_CONFIG_HOME/weir`.
pub(crate) fn home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty());
    let base = match set("XDG_CONFIG_HOME") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(set("HOME")?).join(".config"),
    };
    Some(base.join("weir"))
}

/// The message of an error in a text, with its position.
pub(crate) fn syntax_error(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start);
    format!("line {}: {}", line_and_column(text, at), error.message())
}

/// Line and column of a byte position, from 1.
pub(crate) fn line_and_column(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{line} column {column}")
}

impl Contexts {
    fn path() -> Option<PathBuf> {
        Some(home()?.join("contexts.toml"))
    }

    /// Reads the file. Returns no contexts if it does not exist.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let Some(path) = Self::path() else {
            return Ok(Self::default());
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(error).failed(|| format!("cannot read {}", path.display()));
            }
        };
        let read: Result<Self, _> = toml::from_str(&text);
        if let Ok(contexts) = &read {
            contexts.warn(&path);
        }
        read.map_err(|error| {
            let what = format!("cannot use the file {}", path.display());
            Failure::new(ErrorCode::BadOption, what)
                .because(syntax_error(&text, &error))
                .advise("correct that line")
                .into()
        })
    }

    /// Warns once about keys that this version does not know.
    fn warn(&self, path: &Path) {
        static WARNED: Once = Once::new();
        let inside = self.by_name.iter();
        let inside = inside.flat_map(|(name, context)| {
            let keys = context.others.keys();
            keys.map(move |key| format!("contexts.{name}.{key}"))
        });
        let unknown: Vec<String> = self.others.keys().cloned().chain(inside).collect();
        if !unknown.is_empty() {
            WARNED.call_once(|| {
                let keys = unknown.join(", ");
                note(
                    false,
                    &format!("{} has unknown keys: {keys}", path.display()),
                );
            });
        }
    }

    /// Reads the file for a change. Until the lock is dropped, other commands that change the file
    /// wait.
    pub(crate) fn lock() -> anyhow::Result<(ContextsLock, Self)> {
        let folder = home().ok_or_else(|| {
            Failure::new(ErrorCode::BadOption, "cannot save the contexts")
                .because("neither XDG_CONFIG_HOME nor HOME is set")
                .advise("set one of them")
        })?;
        let lock = || -> std::io::Result<File> {
            std::fs::create_dir_all(&folder)?;
            // The lock is on the folder, because a change replaces the file.
            let file = File::open(&folder)?;
            file.lock()?;
            Ok(file)
        };
        let locked = lock().failed(|| format!("cannot lock {}", folder.display()))?;
        Ok((ContextsLock { _folder: locked }, Self::load()?))
    }

    /// Replaces the file with these contexts.
    pub(crate) fn save(&self, _lock: &ContextsLock) -> anyhow::Result<()> {
        let Some(path) = Self::path() else {
            unreachable!("the folder of the file is locked");
        };
        let write = || -> std::io::Result<()> {
            // A symbolic link stays, and its target is replaced.
            let path = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            let text = toml::to_string(self).map_err(std::io::Error::other)?;
            let new = path.with_extension("toml.new");
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        };
        write().failed(|| format!("cannot write {}", path.display()))
    }

    /// The current context with its name.
    pub(crate) fn current(&self) -> Option<(String, Context)> {
        let name = self.current.as_ref()?;
        Some((name.clone(), self.by_name.get(name)?.clone()))
    }

    pub(crate) fn get(&self, name: &str) -> anyhow::Result<&Context> {
        self.by_name.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            let why = if known.is_empty() {
                "there are no contexts".to_owned()
            } else {
                format!("the known contexts are {}", known.join(", "))
            };
            Failure::new(ErrorCode::NotAStore, format!("there is no context {name}"))
                .because(why)
                .advise(format!("create it with `weir context create {name} DIR`"))
                .into()
        })
    }
}
