//! Contexts: names for places, so that nobody types an address twice.
//!
//! A place may be a server; then its context says where the token is, which
//! authority to trust and which certificate to show. They are kept in `contexts.toml` beside the configuration file. What must
//! never happen here: a secret in that file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Once;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use weir::ErrorCode;

use crate::cli::Caller;
use crate::credentials::Credentials;
use crate::output::{Cell, Field, Format, Shape, field, wide};
use crate::place::{self, Where};
use crate::put::usage;
use crate::report::{Because, Failure, note};
use crate::settings::home;

/// A place with a name.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Context {
    /// Where.
    pub(crate) at: String,
    /// Output format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// For a server.
    #[serde(flatten)]
    pub(crate) credentials: Credentials,
    /// What a newer weir wrote: kept as it is.
    #[serde(flatten)]
    others: toml::Table,
}

/// All contexts.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Contexts {
    current: Option<String>,
    previous: Option<String>,
    #[serde(default, rename = "contexts")]
    by_name: BTreeMap<String, Context>,
    /// What a newer weir wrote: kept as it is.
    #[serde(flatten)]
    others: toml::Table,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Give a place a name
    #[command(after_long_help = "Examples:\n  \
        weir context add local ./data\n  \
        weir context add notes ./notes --format json\n  \
        weir context add far weirs://store.example --server-ca ./ca.pem --token-env STORE_TOKEN")]
    Add {
        /// Name of the context
        name: String,
        /// A directory, weir://HOST:PORT, weirs://HOST:PORT (TLS) or unix:PATH
        #[arg(value_name = "PLACE")]
        place: String,
        /// Environment variable that will hold the token
        #[arg(long, value_name = "NAME")]
        token_env: Option<String>,
        /// Output format in this context
        #[arg(long, value_enum)]
        format: Option<Format>,
    },
    /// Make a context the current one; `-` goes back to the last one, `--none` leaves all
    #[command(after_long_help = "Examples:\n  \
        weir context add local ./data && weir context use local\n  \
        weir context use --none")]
    Use {
        /// Name of the context, or `-`
        #[arg(required_unless_present = "none")]
        name: Option<String>,
        /// Use none
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// List contexts
    #[command(after_long_help = "Examples:\n  weir context ls\n  weir context ls -o json")]
    Ls,
    /// Show one context, or the current one
    #[command(after_long_help = "Examples:\n  \
        weir context add local ./data && weir context show local\n  \
        weir context add local ./data && weir context show local -o json")]
    Show {
        /// Name of the context
        name: Option<String>,
    },
    /// Forget a context; the store is left as it is
    #[command(after_long_help = "Examples:\n  \
        weir context add old ./old && weir context rm old\n  \
        weir context add older ./old && weir context rm older --quiet")]
    Rm {
        /// Name of the context
        name: String,
    },
}

/// Fields of a context.
pub(crate) const FIELDS: &[Field] = &[
    field("name", "text", "name of the context"),
    field(
        "current",
        "bool",
        "whether commands use it when nothing else is said",
    ),
    field("at", "text", "where the store is"),
    field("output", "text", "output format, null for the usual one"),
    field(
        "token",
        "text",
        "where the token is, null for none; it is never shown",
    ),
    wide(
        "server_ca",
        "text",
        "file with the authority to trust, null: the system's",
    ),
    wide(
        "client_cert",
        "text",
        "file with the certificate to show, null for none",
    ),
];

/// Carries out `weir context`.
pub(crate) fn run(caller: &Caller, args: &ContextArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Ls | Verb::Show { .. } => show(caller, &args.verb)?,
        Verb::Add {
            name,
            place,
            token_env,
            format,
        } => {
            let mut contexts = Contexts::load()?;
            let output = format.map(|format| format.name().to_owned());
            // A name stands for one place, wherever the command is typed.
            let whole = |path: &str| {
                let path = std::path::absolute(path).failed(|| format!("cannot name {path}"))?;
                anyhow::Ok(path.display().to_string())
            };
            let at = match place.strip_prefix("unix:") {
                Some(path) => format!("unix:{}", whole(path)?),
                None => match place::parse(place)? {
                    Where::Server(url) => url.to_owned(),
                    Where::Directory(path) => whole(path)?,
                },
            };
            let mut credentials = caller.credentials.absolute()?;
            credentials.identity()?;
            credentials.token_env.clone_from(token_env);
            contexts.by_name.insert(
                name.clone(),
                Context {
                    at,
                    output,
                    credentials,
                    others: toml::Table::new(),
                },
            );
            contexts.save()?;
            note(caller.quiet, &format!("context {name} is {place}"));
        }
        Verb::Use { name, none: _ } => {
            let mut contexts = Contexts::load()?;
            let name = match name.as_deref() {
                Some("-") if contexts.previous.is_none() => {
                    return Err(usage(
                        "no context was in use before this one; --none leaves it",
                    ));
                }
                Some("-") => contexts.previous.clone(),
                name => name.map(str::to_owned),
            };
            if let Some(name) = &name {
                contexts.get(name)?;
            }
            contexts.previous = std::mem::replace(&mut contexts.current, name);
            contexts.save()?;
            let now = contexts.current.as_deref().unwrap_or("none");
            note(caller.quiet, &format!("the current context is {now}"));
        }
        Verb::Rm { name } => {
            let mut contexts = Contexts::load()?;
            contexts.get(name)?;
            contexts.by_name.remove(name);
            for slot in [&mut contexts.current, &mut contexts.previous] {
                slot.take_if(|current| current == name);
            }
            contexts.save()?;
            note(caller.quiet, &format!("context {name} is forgotten"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(caller: &Caller, verb: &Verb) -> anyhow::Result<()> {
    let one = matches!(verb, Verb::Show { .. });
    let shape = if one { Shape::One } else { Shape::List };
    let Some(mut out) = caller.style.open(shape, FIELDS)? else {
        return Ok(());
    };
    let contexts = Contexts::load()?;
    let wanted = match verb {
        Verb::Show { name: Some(name) } => Some(name.clone()),
        Verb::Show { name: None } => {
            let missing = || Failure::new(ErrorCode::NotAStore, "there is no current context");
            Some(contexts.current.clone().ok_or_else(|| {
                missing()
                    .because("none was chosen")
                    .advise("choose one with `weir context use NAME`")
            })?)
        }
        _ => None,
    };
    if let Some(name) = &wanted {
        contexts.get(name)?;
    }
    for (name, context) in &contexts.by_name {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let output = context.output.as_deref();
        let text =
            |text: Option<String>| text.map_or(Cell::Nothing, |text| Cell::Text(text.into()));
        let path = |path: &Option<PathBuf>| Some(path.as_ref()?.display().to_string());
        out.row(&[
            Cell::Text(name.as_str().into()),
            Cell::Flag(contexts.current.as_ref() == Some(name)),
            Cell::Text(context.at.as_str().into()),
            output.map_or(Cell::Nothing, |output| Cell::Text(output.into())),
            text(context.credentials.shown_token()),
            text(path(&context.credentials.server_ca)),
            text(path(&context.credentials.client_cert)),
        ])?;
    }
    out.finish()
}

impl Contexts {
    fn path() -> Option<PathBuf> {
        Some(home()?.join("contexts.toml"))
    }

    /// Reads the file; none is no context.
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
                .because(error.message())
                .advise("correct that line")
                .into()
        })
    }

    /// Says once what of the file is not known here.
    fn warn(&self, path: &Path) {
        static SAID: Once = Once::new();
        let inside = self.by_name.iter();
        let inside = inside.flat_map(|(name, context)| {
            let keys = context.others.keys();
            keys.map(move |key| format!("contexts.{name}.{key}"))
        });
        let unknown: Vec<String> = self.others.keys().cloned().chain(inside).collect();
        if !unknown.is_empty() {
            SAID.call_once(|| {
                let keys = unknown.join(", ");
                note(
                    false,
                    &format!("{} has what is not known here: {keys}", path.display()),
                );
            });
        }
    }

    fn save(&self) -> anyhow::Result<()> {
        let path = Self::path().ok_or_else(|| {
            Failure::new(ErrorCode::BadOption, "cannot keep contexts")
                .because("neither XDG_CONFIG_HOME nor HOME is set")
                .advise("set one of them")
        })?;
        let shown = path.display().to_string();
        let write = || -> std::io::Result<()> {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let text = toml::to_string(self).map_err(std::io::Error::other)?;
            let new = path.with_extension("toml.new");
            std::fs::write(&new, text)?;
            std::fs::rename(&new, &path)
        };
        write().failed(|| format!("cannot write {shown}"))
    }

    /// The current context with its name.
    pub(crate) fn current(&self) -> Option<(String, Context)> {
        let name = self.current.as_ref()?;
        Some((name.clone(), self.by_name.get(name)?.clone()))
    }

    fn get(&self, name: &str) -> anyhow::Result<&Context> {
        self.by_name.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            Failure::new(ErrorCode::NotAStore, format!("there is no context {name}"))
                .because(format!("known are: {}", known.join(", ")))
                .advise(format!("make it with `weir context add {name} DIR`"))
                .into()
        })
    }
}
