//! A replica of a Jira site for Lisp. Reads are answered from memory and topics; network requests
//! run as tasks.
//!
//! Invariants: no function that Lisp calls sends a request on the thread of Emacs; no result and no
//! message contains a token.

mod edits;
mod functions;
mod page;
mod set;
mod shown;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Value, json};
use weir::{ErrorCode, OpenOptions, StoreError, Weir, WeirError};
use weir_jira::JiraError;
use weir_jira::access::{self, Site as Settings, TokenStore};
use weir_jira::client::{Client, Deployment};
use weir_jira::index::Index;
use weir_jira::meta;
use weir_jira::pull::{PullOptions, pull_with};
use weir_jira::push::{PushOptions, push};
use weir_jira::replica::{Replica, VALUE_BYTES_MAX};

use crate::failure::Failure;
use crate::store::Handle;
use crate::threads::{locked, thread};

/// Limit on issues that are updated while lists wait; for more issues, a new index is built beside
/// the old one.
const REFRESH_MAX: usize = 100;

/// A site with its replica.
pub(crate) struct Site {
    name: String,
    folder: PathBuf,
    settings: Settings,
    /// The store, which all open sites of the directory share; `None` after the site was closed.
    store: Mutex<Option<Arc<Handle>>>,
    shared: Arc<Shared>,
}

/// A store that all open sites of its directory share.
struct SharedStore {
    handle: Weak<Handle>,
    /// Why the store is open for reading only; `None`: it can be written.
    read_only: Option<String>,
}

/// Stores of open sites, by directory.
static STORES: Mutex<BTreeMap<PathBuf, SharedStore>> = Mutex::new(BTreeMap::new());

/// State that the tasks of a site also use.
struct Shared {
    replica: Replica,
    /// Why the store is open for reading only; `None`: it can be written.
    read_only: Option<String>,
    index: Mutex<Index>,
    /// Held during an update of the index, which locks `index` only at the end.
    refreshing: Mutex<()>,
}

/// The parameters of a login.
pub(crate) struct Login {
    pub(crate) folder: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) token: Option<String>,
    /// Whether the token is stored as the settings specify, instead of in auth-source.
    pub(crate) keep: bool,
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

impl Login {
    /// Tests the rights of the account, and stores the settings if the account may browse.
    pub(crate) fn run(mut self) -> Result<Value, Failure> {
        self.settings.check_expiry(now_ms())?;
        let name = Settings::name_in(&self.folder, &self.settings.site_url);
        let token = self.token.as_deref();
        if self.settings.api_url == self.settings.site_url {
            // A gateway exists only for Jira Cloud.
            self.settings.detect(token)?;
        }
        let client = self.settings.client(token)?;
        let rights = access::rights(&client)?;
        let browses = rights
            .iter()
            .any(|right| right.name == "BROWSE_PROJECTS" && right.granted);
        if !browses {
            let text = "the right BROWSE_PROJECTS is missing, without which nothing can be read; give \
                        the token the scope read:jira-work, or the account the right";
            return Err(Failure::new("weir-auth", text));
        }
        let kept = self.token.as_deref().filter(|_| self.keep);
        self.settings.save(&self.folder, &name, kept)?;
        let right = |right: &access::Right| json!({"name": right.name, "purpose": right.purpose, "granted": right.granted});
        Ok(json!({
            "name": name,
            "read-only": self.settings.deployment == Deployment::DataCenter,
            "rights": rights.iter().map(right).collect::<Vec<_>>(),
            "expires-in": self.settings.expires_within(now_ms()),
        }))
    }
}

/// An open store, and why it is open for reading only.
struct OpenedStore {
    handle: Arc<Handle>,
    weir: Weir,
    read_only: Option<String>,
}

/// The store in a directory: that of an open site, or a new one. A store that cannot be written is
/// opened for reading only (ADR 0059).
fn opened(directory: &Path) -> Result<OpenedStore, Failure> {
    let mut stores = locked(&STORES);
    if let Some(store) = stores.get(directory)
        && let Some(handle) = store.handle.upgrade()
        && let Ok(weir) = handle.weir()
    {
        return Ok(OpenedStore {
            handle,
            weir,
            read_only: store.read_only.clone(),
        });
    }
    let mut options = OpenOptions::default();
    options.limits.value_bytes_max = VALUE_BYTES_MAX;
    let (weir, read_only) = match Weir::open_with(directory, &options) {
        Err(WeirError::Store(error)) if cannot_write(&error) => {
            options.read_only = true;
            let reason = format!("read only: {error}");
            let weir = Weir::open_with(directory, &options);
            // The first error is the cause.
            (
                weir.map_err(|_| open_failure(directory, error))?,
                Some(reason),
            )
        }
        Err(WeirError::Store(error)) => return Err(open_failure(directory, error)),
        weir => (weir?, None),
    };
    let handle = Arc::new(Handle::new(weir.clone()));
    let store = SharedStore {
        handle: Arc::downgrade(&handle),
        read_only: read_only.clone(),
    };
    stores.insert(directory.to_owned(), store);
    Ok(OpenedStore {
        handle,
        weir,
        read_only,
    })
}

/// Whether the directory is on a full disk, or this process may not write to it.
fn cannot_write(error: &StoreError) -> bool {
    let forbidden = matches!(error, StoreError::Io { source, .. } if matches!(
        source.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    ));
    forbidden || error.code() == ErrorCode::DiskFull
}

/// The error of an open. For damage, it also has what to do about the outbox.
fn open_failure(directory: &Path, error: StoreError) -> Failure {
    let is_damage = error.code() == ErrorCode::Damaged;
    let mut failure = Failure::open(directory, error);
    if is_damage {
        failure.text.push_str(
            ". Without the directory, a pull fetches the issues again, but changes in the outbox that \
             were not sent are only there",
        );
    }
    failure
}

impl Site {
    /// Opens the store in a directory, and the replica of the site with this name in it. Reads all
    /// issues into memory, so it must run on a task.
    pub(crate) fn open(directory: &Path, folder: &Path, name: &str) -> Result<Self, Failure> {
        let settings = Settings::load(folder, name)?;
        let OpenedStore {
            handle,
            weir,
            read_only,
        } = opened(directory)?;
        let replica = Replica::new(weir, name);
        let index = Index::load(&replica).map_err(|error| match error {
            JiraError::Store(WeirError::Store(error)) => open_failure(directory, error),
            error => error.into(),
        })?;
        let index = Mutex::new(index);
        Ok(Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            settings,
            store: Mutex::new(Some(handle)),
            shared: Arc::new(Shared {
                replica,
                read_only,
                index,
                refreshing: Mutex::default(),
            }),
        })
    }

    /// Closes the site on a task, and the store with its last site.
    fn close(&self) -> impl FnOnce() -> Result<(), Failure> + Send + use<> {
        let store = locked(&self.store).take();
        move || {
            // The lock prevents another site from opening the store before it is closed.
            let stores = locked(&STORES);
            let last = store.and_then(Arc::into_inner);
            if let Some(weir) = last.and_then(|store| store.take()) {
                weir.close()?;
            }
            drop(stores);
            Ok(())
        }
    }

    /// Creates a client of the site on a task. The token is the given one, or that of the file or
    /// keyring. The keyring may ask the user.
    fn client(
        &self,
        token: Option<String>,
    ) -> impl FnOnce() -> Result<Client, Failure> + Send + use<> {
        let (settings, folder) = (self.settings.clone(), self.folder.clone());
        let name = self.name.clone();
        move || {
            let token = match token {
                Some(token) => Some(token),
                None => settings.token(&folder, &name)?,
            };
            Ok(settings.client(token.as_deref())?)
        }
    }

    /// The options of a pull, without a reference to the site.
    fn pull_options(&self, census: bool, confirm_removal: bool) -> PullOptions {
        PullOptions {
            projects: self.settings.projects.clone(),
            census,
            confirm_removal,
            now_ms: now_ms(),
            ..PullOptions::default()
        }
    }

    /// The stored data about the site.
    fn about(&self) -> Result<Value, Failure> {
        let cursor: Option<Value> = self.shared.replica.read("cursors", "issues")?;
        let myself = meta::myself(&self.shared.replica)?;
        Ok(json!({
            "name": self.name,
            "site-url": self.settings.site_url.trim_end_matches('/'),
            "email": self.settings.email,
            "bearer": self.settings.bearer,
            "api-url": self.settings.api_url,
            "token-store": match self.settings.token_store {
                TokenStore::File => "file",
                TokenStore::Keyring => "keyring",
            },
            "read-only": self.settings.deployment == Deployment::DataCenter,
            "store-read-only": self.shared.read_only,
            "projects": self.settings.projects,
            "expires-in": self.settings.expires_within(now_ms()),
            "issues": locked(&self.shared.index).len(),
            "pulled": cursor.is_some_and(|cursor| !cursor["watermark_ms"].is_null()),
            "account": meta::account(&self.shared.replica)?,
            "display-name": myself["displayName"],
        }))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The finalizer must not wait until the rows of all issues are freed.
        if Arc::strong_count(&self.shared) == 1 {
            let index = std::mem::take(&mut *locked(&self.shared.index));
            // Without a thread, the rows are freed here.
            let _ = thread("weir-drop", move || drop(index));
        }
    }
}

impl Shared {
    /// Fails if the store is open for reading only.
    fn check_writable(&self) -> Result<(), Failure> {
        match &self.read_only {
            None => Ok(()),
            Some(reason) => Err(Failure::new("weir-storage", reason.clone())),
        }
    }

    /// Updates the rows in memory. Returns the number of changed rows.
    fn refresh(&self) -> Result<usize, Failure> {
        let refreshing = locked(&self.refreshing);
        let refresh = locked(&self.index).begin_refresh();
        let update = refresh.read(&self.replica)?;
        let changed = locked(&self.index).apply(update);
        drop(refreshing);
        Ok(changed)
    }

    /// Updates the rows in memory after a durable change. Returns `result`, the result of the change.
    /// If the update fails, the change must not be reported as failed: the result gets the reason as
    /// `stale`, and the next update reads the change.
    fn refreshed(&self, mut result: Value) -> Value {
        if let Err(failure) = self.refresh() {
            result["stale"] = failure.text.into();
        }
        result
    }

    /// As `refresh`, after many changes: lists use the old rows meanwhile. Returns `changed`.
    fn replace(&self, changed: usize) -> Result<usize, Failure> {
        let refreshing = locked(&self.refreshing);
        let index = Index::load(&self.replica)?;
        let old = std::mem::replace(&mut *locked(&self.index), index);
        drop(refreshing);
        drop(old);
        Ok(changed)
    }

    /// Pulls the changes, then updates the rows in memory. After each page, calls `report_stored`
    /// with the number of stored issues.
    fn pull(
        &self,
        client: &Client,
        options: &PullOptions,
        report_stored: impl Fn(u64),
    ) -> Result<Value, Failure> {
        self.check_writable()?;
        let mut first = None;
        let report = pull_with(client, &self.replica, options, |report| {
            if report.stored == 0 {
                return;
            }
            // Updates the rows after the first page. An error will occur again below.
            if first.is_none() {
                first = Some(self.refresh().unwrap_or_default());
            }
            report_stored(report.stored);
        });
        // Issues that were stored before an error also count.
        let stored = report.as_ref().map_or(usize::MAX, |report| {
            usize::try_from(report.stored).unwrap_or(usize::MAX)
        });
        let changed = if stored > REFRESH_MAX {
            self.replace(stored)?
        } else {
            first.unwrap_or_default() + self.refresh()?
        };
        let mut report = serde_json::to_value(report?).unwrap_or_default();
        report["changed"] = changed.into();
        Ok(report)
    }

    /// Sends the outbox, then pulls. The report of the pull is under `pull`.
    fn push(&self, client: &Client, options: &PullOptions) -> Result<Value, Failure> {
        self.check_writable()?;
        let pushed = PushOptions {
            now_ms: options.now_ms,
        };
        let report = push(client, &self.replica, &pushed);
        self.refresh()?;
        let mut report = serde_json::to_value(report?).unwrap_or_default();
        report["pull"] = self.pull(client, options, |_| ())?;
        Ok(report)
    }
}
