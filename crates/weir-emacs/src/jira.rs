//! A replica of a Jira site for Lisp. Reads are answered from memory and topics; network requests
//! run as tasks.
//!
//! Invariants: no function that Lisp calls sends a request on the thread of Emacs; no result and no
//! message contains a token.

mod edits;
mod functions;
mod page;
mod shown;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Value, json};
use weir::{OpenOptions, Weir};
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

/// Stores of open sites, by directory.
static STORES: Mutex<BTreeMap<PathBuf, Weak<Handle>>> = Mutex::new(BTreeMap::new());

/// State that the tasks of a site also use.
struct Shared {
    replica: Replica,
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

/// The store in a directory: that of an open site, or a new one.
fn opened(directory: &Path) -> Result<(Arc<Handle>, Weir), Failure> {
    let mut stores = locked(&STORES);
    if let Some(store) = stores.get(directory).and_then(Weak::upgrade)
        && let Ok(weir) = store.weir()
    {
        return Ok((store, weir));
    }
    let mut options = OpenOptions::default();
    options.limits.value_bytes_max = VALUE_BYTES_MAX;
    let weir = Weir::open_with(directory, &options)?;
    let store = Arc::new(Handle::new(weir.clone()));
    stores.insert(directory.to_owned(), Arc::downgrade(&store));
    Ok((store, weir))
}

impl Site {
    /// Opens the store in a directory, and the replica of the site with this name in it. Reads all
    /// issues into memory, so it must run on a task.
    pub(crate) fn open(directory: &Path, folder: &Path, name: &str) -> Result<Self, Failure> {
        let settings = Settings::load(folder, name)?;
        let (store, weir) = opened(directory)?;
        let replica = Replica::new(weir, name);
        let index = Mutex::new(Index::load(&replica)?);
        Ok(Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            settings,
            store: Mutex::new(Some(store)),
            shared: Arc::new(Shared {
                replica,
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
    /// Updates the rows in memory. Returns the number of changed rows.
    fn refresh(&self) -> Result<usize, Failure> {
        let refreshing = locked(&self.refreshing);
        let reading = locked(&self.index).reading();
        let update = reading.read(&self.replica)?;
        let changed = locked(&self.index).apply(update);
        drop(refreshing);
        Ok(changed)
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

    /// Pulls the changes, then updates the rows in memory. After each page, calls `tell` with the
    /// number of stored issues.
    fn pull(
        &self,
        client: &Client,
        options: &PullOptions,
        tell: impl Fn(u64),
    ) -> Result<Value, Failure> {
        let mut first = None;
        let report = pull_with(client, &self.replica, options, |report| {
            if report.stored == 0 {
                return;
            }
            // Updates the rows after the first page. An error will occur again below.
            if first.is_none() {
                first = Some(self.refresh().unwrap_or_default());
            }
            tell(report.stored);
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
