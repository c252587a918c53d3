//! Contexts: names for places, so that users need not repeat an address.
//!
//! A context of a server also has the path of the token, the trusted authority and the client
//! certificate. Contexts are stored in `contexts.toml` beside the configuration file. Invariant:
//! that file contains no secret.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::ErrorCode;

use crate::caller::Caller;
use crate::context_file::{Context, Contexts};
use crate::credentials::Credentials;
use crate::output::{Cell, Field, Format, Shape, field, wide};
use crate::place::{self, Location};
use crate::report::{Failure, FailureContext, note, usage};

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    verb: Verb,
}

/// Options of a context besides its place.
#[derive(Debug, Args)]
struct Options {
    /// Environment variable that contains the token
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,
    /// Output format of commands in this context
    #[arg(long, value_enum, value_name = "FORMAT")]
    default_output: Option<Format>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a context: a name for a place
    #[command(after_long_help = "Examples:\n  \
        weir context create local ./data\n  \
        weir context create notes ./notes --default-output json\n  \
        weir context create far weirs://store.example --server-ca ./ca.pem --token-env STORE_TOKEN")]
    Create {
        /// Name of the context
        name: String,
        /// A directory, weir://HOST:PORT, weirs://HOST:PORT (TLS) or unix:PATH
        #[arg(value_name = "PLACE")]
        place: String,
        #[command(flatten)]
        options: Options,
    },
    /// Change a context; the other options keep their values
    #[command(after_long_help = "Examples:\n  \
        weir context create moved ./data && weir context set moved ./other\n  \
        weir context create texts ./notes && weir context set texts --default-output json")]
    Set {
        /// Name of the context
        name: String,
        /// A directory, weir://HOST:PORT, weirs://HOST:PORT (TLS) or unix:PATH
        #[arg(value_name = "PLACE")]
        place: Option<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Select the current context; `-` selects the previous one, `--none` selects none
    #[command(after_long_help = "Examples:\n  \
        weir context create used ./data && weir context use used\n  \
        weir context use --none")]
    Use {
        /// Name of the context, or `-`
        #[arg(required_unless_present = "none")]
        name: Option<String>,
        /// Select no context
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// List contexts
    #[command(after_long_help = "Examples:\n  weir context ls\n  weir context ls -o json")]
    Ls,
    /// Show one context, or the current one
    #[command(after_long_help = "Examples:\n  \
        weir context create local ./data && weir context show local\n  \
        weir context create other ./data && weir context show other -o json")]
    Show {
        /// Name of the context
        name: Option<String>,
    },
    /// Remove a context; the store does not change
    #[command(after_long_help = "Examples:\n  \
        weir context create old ./old && weir context rm old\n  \
        weir context create older ./old && weir context rm older --quiet")]
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
        "whether commands use this context by default",
    ),
    field("at", "text", "place of the store"),
    field("output", "text", "output format, null: the default"),
    field(
        "token",
        "text",
        "source of the token, null: none; the token is never shown",
    ),
    wide(
        "server_ca",
        "text",
        "file with the trusted authority, null: those of the system",
    ),
    wide(
        "client_cert",
        "text",
        "file with the client certificate, null: none",
    ),
];

/// Runs `weir context`.
pub(crate) fn run(caller: &Caller, args: &ContextArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Ls | Verb::Show { .. } => show(caller, &args.verb)?,
        Verb::Create {
            name,
            place,
            options,
        } => {
            // `weir context use -` selects the previous context.
            if name.is_empty() || name == "-" {
                return Err(usage("the name of a context must not be empty or `-`"));
            }
            let (lock, mut contexts) = Contexts::lock()?;
            if contexts.by_name.contains_key(name) {
                let what = format!("cannot create context {name}");
                let failure = Failure::new(ErrorCode::BadOption, what);
                return Err(failure
                    .because("there is a context of this name")
                    .advise(format!("change it with `weir context set {name}`"))
                    .into());
            }
            let context = Context {
                at: absolute_place(place)?,
                output: None,
                credentials: Credentials::default(),
                others: toml::Table::new(),
            };
            let context = with_options(caller, context, options)?;
            contexts.by_name.insert(name.clone(), context);
            contexts.save(&lock)?;
            note(caller.quiet, &format!("context {name} is {place}"));
        }
        Verb::Set {
            name,
            place,
            options,
        } => {
            let (lock, mut contexts) = Contexts::lock()?;
            let mut context = contexts.get(name)?.clone();
            if let Some(place) = place {
                context.at = absolute_place(place)?;
            }
            let context = with_options(caller, context, options)?;
            let shown = context.at.clone();
            contexts.by_name.insert(name.clone(), context);
            contexts.save(&lock)?;
            note(caller.quiet, &format!("context {name} is {shown}"));
        }
        Verb::Use { name, none: _ } => {
            let (lock, mut contexts) = Contexts::lock()?;
            let name = match name.as_deref() {
                Some("-") if contexts.previous.is_none() => {
                    return Err(usage(
                        "there is no previous context; --none selects no context",
                    ));
                }
                Some("-") => contexts.previous.clone(),
                name => name.map(str::to_owned),
            };
            if let Some(name) = &name {
                contexts.get(name)?;
            }
            contexts.previous = std::mem::replace(&mut contexts.current, name);
            contexts.save(&lock)?;
            let now = contexts.current.as_deref().unwrap_or("none");
            note(caller.quiet, &format!("the current context is {now}"));
        }
        Verb::Rm { name } => {
            let (lock, mut contexts) = Contexts::lock()?;
            contexts.get(name)?;
            contexts.by_name.remove(name);
            for slot in [&mut contexts.current, &mut contexts.previous] {
                slot.take_if(|current| current == name);
            }
            contexts.save(&lock)?;
            note(caller.quiet, &format!("context {name} is removed"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the paths of a place absolute, so that it does not depend on the current directory.
fn absolute_place(place: &str) -> anyhow::Result<String> {
    let absolute = |path: &str| {
        let path = std::path::absolute(path).failed(|| format!("cannot resolve {path}"))?;
        anyhow::Ok(path.display().to_string())
    };
    Ok(match place.strip_prefix("unix:") {
        Some(path) => format!("unix:{}", absolute(path)?),
        None => match place::parse(place)? {
            Location::Server(url) => url.to_owned(),
            Location::Directory(path) => absolute(path)?,
        },
    })
}

/// The context with the options of the call applied.
fn with_options(
    caller: &Caller,
    mut context: Context,
    options: &Options,
) -> anyhow::Result<Context> {
    let mut credentials = caller.credentials.absolute()?;
    credentials.identity()?;
    credentials.token_env.clone_from(&options.token_env);
    context.credentials = credentials.or(context.credentials);
    if let Some(format) = options.default_output {
        context.output = Some(format.name().to_owned());
    }
    Ok(context)
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
                    .because("no context is selected")
                    .advise("select one with `weir context use NAME`")
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
