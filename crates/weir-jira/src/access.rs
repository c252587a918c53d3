//! The addresses of a site, and the token for it.
//!
//! Each site has two files in one folder: `NAME.json` with the settings and `NAME.token` with the
//! token. Only the owner may read the token file (mode 0600). The keyring of the desktop can store
//! the token instead. A site has two addresses: one for links, and one for requests, because a
//! token with scopes needs the gateway.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::{Client, Deployment, is_loopback};
use crate::error::{JiraError, Result};
use crate::keyring;
use crate::time::{self, DAY_MS};

/// A warning is due when a token expires in at most this number of days.
pub const EXPIRY_WARNING_DAYS: i64 = 14;

/// The storage of the token of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenStore {
    /// A file of mode 0600 beside the settings.
    #[default]
    File,
    /// The keyring of the desktop, through `secret-tool`.
    Keyring,
}

/// The account name of a bearer token in a keyring.
const BEARER: &str = "personal-access-token";

/// Settings of a site, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Address of the web pages: links begin with it.
    pub site_url: String,
    /// Address for requests: that of the site, or `https://api.atlassian.com/ex/jira/CLOUDID`.
    pub api_url: String,
    /// E-mail address of the account (at Data Center: user name). Empty: no authentication, or a
    /// bearer token.
    pub email: String,
    /// The interface of the site; default Cloud.
    #[serde(default)]
    pub deployment: Deployment,
    /// Whether the token is a personal access token of Data Center, sent without an account;
    /// default no.
    #[serde(default)]
    pub bearer: bool,
    /// Date at which the token expires, `YYYY-MM-DD`; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Keys of the projects of the replica; empty: all that the account can see.
    #[serde(default)]
    pub projects: Vec<String>,
    /// The storage of the token; default a file.
    #[serde(default)]
    pub token_store: TokenStore,
}

/// A required right, and whether the token has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Name of the right in Jira.
    pub name: &'static str,
    /// The purpose of the right.
    pub purpose: &'static str,
    /// Whether the account has the right through this token.
    pub granted: bool,
}

/// Rights that a login tests, each with its purpose.
const RIGHTS: &[(&str, &str)] = &[
    ("BROWSE_PROJECTS", "pull, list, show and search"),
    ("CREATE_ISSUES", "create"),
    ("EDIT_ISSUES", "edit"),
    ("TRANSITION_ISSUES", "transition"),
    ("ADD_COMMENTS", "comment"),
    ("ASSIGN_ISSUES", "assign"),
    ("LINK_ISSUES", "link"),
    ("WORK_ON_ISSUES", "worklog"),
    ("EDIT_OWN_WORKLOGS", "worklog --edit"),
    ("DELETE_OWN_WORKLOGS", "worklog --delete"),
    ("DELETE_ISSUES", "delete"),
    ("ADMINISTER_PROJECTS", "project edit"),
    ("ADMINISTER", "project create and delete"),
];

impl Site {
    /// The name of a site in topics and files: its host and path. `-` replaces characters that a
    /// topic name cannot contain.
    pub fn name_of(site_url: &str) -> String {
        let address = site_url
            .split_once("://")
            .map_or(site_url, |(_, rest)| rest)
            .trim_end_matches('/');
        let (host, path) = address
            .split_once('/')
            .map_or((address, None), |(host, path)| (host, Some(path)));
        let host = host.strip_suffix(".atlassian.net").unwrap_or(host);
        let path = path.map_or_else(String::new, |path| format!("/{path}"));
        format!("{host}{path}")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect()
    }

    /// The name for a site in a folder of settings: that of [`name_of`](Self::name_of), with a
    /// number appended if another site has that name. A known site keeps its name.
    pub fn name_in(folder: &Path, site_url: &str) -> String {
        let name = Self::name_of(site_url);
        let address = site_url.trim_end_matches('/');
        let mut names = (1_u64..).map(|number| match number {
            1 => name.clone(),
            number => format!("{name}-{number}"),
        });
        let free = names.find(|name| match Self::load(folder, name) {
            Ok(known) => known.site_url.trim_end_matches('/') == address,
            // A name without readable settings belongs to no other site.
            Err(_) => true,
        });
        free.unwrap_or(name)
    }

    /// Reads the settings of a site from a folder.
    ///
    /// # Errors
    /// `File` or `Settings`, which name the file that cannot be read.
    pub fn load(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.json"));
        let bytes = fs::read(&path).map_err(|source| file_error(&path, source))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            JiraError::Settings(format!(
                "{} does not have the settings of a site: {error}; correct the file, or delete it and \
                 log in again",
                path.display()
            ))
        })
    }

    /// The names of the sites in a folder, in order; empty if there is no folder.
    ///
    /// # Errors
    /// `File` if the folder exists and cannot be read.
    pub fn names(folder: &Path) -> Result<Vec<String>> {
        let failed = |source| file_error(folder, source);
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(failed)?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
            names.extend(name.map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Fails if the date of expiry is not a date `YYYY-MM-DD`, or is before today. The message does
    /// not contain a text that is no date: it may be a token that was entered at the wrong prompt.
    pub fn check_expiry(&self, now_ms: i64) -> Result<()> {
        let Some(text) = &self.expires else {
            return Ok(());
        };
        let now = Timestamp::from_millisecond(now_ms).unwrap_or_default();
        let today = now.to_zoned(TimeZone::UTC).date();
        let what = match text.parse::<Date>() {
            // It is still yesterday in western time zones.
            Ok(date) if date.to_string() == *text => {
                if date >= today.yesterday().unwrap_or(today) {
                    return Ok(());
                }
                format!("{text} is in the past")
            }
            _ => "it is not a date YYYY-MM-DD".to_owned(),
        };
        let field = "date of expiry".to_owned();
        Err(JiraError::Field { field, what })
    }

    /// Fails if a token would be sent without TLS to another machine.
    pub fn check(&self, with_token: bool) -> Result<()> {
        if with_token && !self.api_url.starts_with("https://") && !is_loopback(&self.api_url) {
            let text = format!("{} has no TLS: a token is not sent there", self.api_url);
            return Err(JiraError::Settings(text));
        }
        Ok(())
    }

    /// Writes the settings and the token; the folder is created with mode 0700.
    pub fn save(&self, folder: &Path, name: &str, token: Option<&str>) -> Result<()> {
        self.check(token.is_some())?;
        fs::create_dir_all(folder).map_err(|source| file_error(folder, source))?;
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(folder, mode).map_err(|source| file_error(folder, source))?;
        if let Some(token) = token {
            let path = folder.join(format!("{name}.token"));
            match self.token_store {
                TokenStore::File => write(&path, token.as_bytes())?,
                TokenStore::Keyring => {
                    keyring::store(name, self.account(), token)?;
                    // A token must not remain at its old place.
                    drop(fs::remove_file(&path));
                }
            }
        }
        let text = serde_json::to_vec_pretty(self)?;
        write(&folder.join(format!("{name}.json")), &text)
    }

    /// Reads the token of a site; `None` for a site without authentication.
    ///
    /// # Errors
    /// `Settings` if other users may read the file, or the keyring has no token.
    pub fn token(&self, folder: &Path, name: &str) -> Result<Option<String>> {
        if self.email.is_empty() && !self.bearer {
            return Ok(None);
        }
        if self.token_store == TokenStore::Keyring {
            return keyring::token(name, self.account()).map(Some);
        }
        let path = folder.join(format!("{name}.token"));
        let about = fs::metadata(&path).map_err(|source| file_error(&path, source))?;
        if about.permissions().mode() & 0o077 != 0 {
            let text = format!("others may read {}: run `chmod 600` on it", path.display());
            return Err(JiraError::Settings(text));
        }
        let token = fs::read_to_string(&path).map_err(|source| file_error(&path, source))?;
        Ok(Some(token.trim().to_owned()))
    }

    /// The account under which a keyring stores the token.
    fn account(&self) -> &str {
        if self.bearer { BEARER } else { &self.email }
    }

    /// A client for requests to the site, with this token.
    ///
    /// # Errors
    /// `Settings` if the token would be sent without TLS to another machine, or if the certificate
    /// authorities cannot be read.
    pub fn client(&self, token: Option<&str>) -> Result<Client> {
        self.check(token.is_some())?;
        let login = token.map(|token| (self.email.as_str(), token));
        Ok(Client::new(&self.api_url, login)?.deployed(self.deployment))
    }

    /// Asks the site for its interface, and records it with the form of the token. Sends one
    /// request, or two if the site requires a token for the first.
    ///
    /// # Errors
    /// `Settings` for a token without an e-mail address at Jira Cloud.
    pub fn detect(&mut self, token: Option<&str>) -> Result<()> {
        // Data Center has only version 2, and Cloud also answers version 2.
        let probe = Self {
            deployment: Deployment::DataCenter,
            ..self.clone()
        };
        let server: Value = match probe.client(None)?.get("serverInfo") {
            Err(JiraError::Unauthenticated | JiraError::Status { status: 403, .. })
                if token.is_some() =>
            {
                probe.client(token)?.get("serverInfo")?
            }
            server => server?,
        };
        self.deployment = if server["deploymentType"] == "Server" {
            Deployment::DataCenter
        } else {
            Deployment::Cloud
        };
        let bearer = token.is_some() && self.email.is_empty();
        if bearer && self.deployment == Deployment::Cloud {
            let text =
                "Jira Cloud accepts a token only with the e-mail address of its account; give both";
            return Err(JiraError::Settings(text.to_owned()));
        }
        self.bearer = bearer;
        Ok(())
    }

    /// The number of days until the token expires, if it is at most 14. 0 on the date of expiry, and
    /// on the next one, because it begins later in western time zones; negative after these dates.
    pub fn expires_within(&self, now_ms: i64) -> Option<i64> {
        let end = time::parse_literal(self.expires.as_ref()?, &TimeZone::UTC)?;
        let days = end.div_euclid(DAY_MS) - now_ms.div_euclid(DAY_MS);
        let days = if days == -1 { 0 } else { days };
        (days <= EXPIRY_WARNING_DAYS).then_some(days)
    }

    /// The web address of an issue.
    pub fn browse_url(&self, key: &str) -> String {
        format!("{}/browse/{key}", self.site_url.trim_end_matches('/'))
    }
}

/// Requests the rights that commands need; at Data Center only the right to read. Sends one
/// request.
pub fn rights(client: &Client) -> Result<Vec<Right>> {
    let wanted = match client.deployment() {
        Deployment::Cloud => RIGHTS,
        Deployment::DataCenter => RIGHTS.get(..1).unwrap_or(RIGHTS),
    };
    let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
    let path = format!("mypermissions?permissions={}", names.join(","));
    let answer: Value = client.get(&path)?;
    let right = |(name, purpose): &(&'static str, &'static str)| Right {
        name,
        purpose,
        granted: answer["permissions"][*name]["havePermission"].as_bool() == Some(true),
    };
    Ok(wanted.iter().map(right).collect())
}

/// Writes a file that only its owner may read. The file is written completely or not at all.
fn write(path: &PathBuf, bytes: &[u8]) -> Result<()> {
    let failed = |source| file_error(path, source);
    let draft = path.with_extension("new");
    drop(fs::remove_file(&draft));
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    fs::rename(&draft, path).map_err(failed)
}

fn file_error(path: &Path, source: std::io::Error) -> JiraError {
    JiraError::File {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
    use super::*;

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let site = Site {
            site_url: "http://127.0.0.1:1".to_owned(),
            api_url: "http://127.0.0.1:1".to_owned(),
            email: "a@example.com".to_owned(),
            ..Site::default()
        };
        site.save(folder.path(), "x", Some("s3cret")).unwrap();
        assert_eq!(
            site.token(folder.path(), "x").unwrap().as_deref(),
            Some("s3cret")
        );
        let path = folder.path().join("x.token");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = site.token(folder.path(), "x").unwrap_err().to_string();
        assert!(
            error.contains("chmod 600") && !error.contains("s3cret"),
            "{error}"
        );
        let far = Site {
            api_url: "http://example.com".to_owned(),
            ..site.clone()
        };
        assert!(far.save(folder.path(), "x", Some("s3cret")).is_err());
        for api_url in [
            "http://127.0.0.1.example.com",
            "http://127.0.0.1:80@example.com",
        ] {
            let near = Site {
                api_url: api_url.to_owned(),
                ..site.clone()
            };
            assert!(near.save(folder.path(), "x", Some("s3cret")).is_err());
        }
    }

    #[test]
    fn a_warning_is_due_fourteen_days_before_the_end() {
        let site = Site {
            expires: Some("1970-02-01".to_owned()),
            ..Site::default()
        };
        assert_eq!(site.expires_within(16 * DAY_MS), None);
        assert_eq!(site.expires_within(17 * DAY_MS), Some(14));
        assert_eq!(site.expires_within(18 * DAY_MS - 1), Some(14));
        // A date that `check_expiry` accepts has not expired.
        for now_ms in [31 * DAY_MS, 31 * DAY_MS + DAY_MS / 2, 33 * DAY_MS - 1] {
            assert_eq!(site.expires_within(now_ms), Some(0));
            site.check_expiry(now_ms).unwrap();
        }
        assert_eq!(site.expires_within(33 * DAY_MS), Some(-2));
        site.check_expiry(33 * DAY_MS).unwrap_err();
        assert_eq!(Site::name_of("https://acme.atlassian.net/"), "acme");
        assert_eq!(Site::name_of("http://127.0.0.1:1938"), "127-0-0-1-1938");
    }

    #[test]
    fn a_date_of_expiry_is_a_date_that_is_not_past() {
        // 2024-11-29, 10:44 UTC.
        let now_ms = 1_732_877_091_887;
        for (text, fault) in [
            ("2024-11-29", None),
            ("2025-02-28", None),
            ("2024-11-27", Some("2024-11-27 is in the past")),
            ("2025-13-45", Some("not a date")),
            ("2025-02-29", Some("not a date")),
            ("2025-2-1", Some("not a date")),
            ("2025-02-01 10:00", Some("not a date")),
            ("ATATT3xFfGF0s3cret", Some("not a date")),
        ] {
            let site = Site {
                expires: Some(text.to_owned()),
                ..Site::default()
            };
            match (site.check_expiry(now_ms), fault) {
                (Ok(()), None) => {}
                (Err(error), Some(fault)) => {
                    let error = error.to_string();
                    assert!(error.contains(fault), "{error}");
                    assert!(!error.contains("s3cret"), "{error}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn only_a_folder_that_does_not_exist_has_no_sites() {
        let folder = tempfile::tempdir().unwrap();
        let none = Site::names(&folder.path().join("none")).unwrap();
        assert!(none.is_empty());
        // A file instead of a folder: the names cannot be read.
        let file = folder.path().join("x.json");
        fs::write(&file, "{bad").unwrap();
        let error = Site::names(&file).unwrap_err().to_string();
        assert!(error.contains("x.json"), "{error}");
        // The message names a file of settings that is broken.
        assert_eq!(Site::names(folder.path()).unwrap(), ["x"]);
        let error = Site::load(folder.path(), "x").unwrap_err().to_string();
        let path = file.display().to_string();
        assert!(error.starts_with(&path), "{error}");
    }

    #[test]
    fn two_sites_never_share_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        // Two paths of one host, and addresses that differ only in characters that a name cannot
        // contain.
        for url in [
            "https://jira.example.com/one",
            "https://jira.example.com/two/",
            "https://jira.example.com",
            "https://jira-example.com",
            "https://jira.example.com/one/",
        ] {
            let name = Site::name_in(folder.path(), url);
            let site = Site {
                site_url: url.to_owned(),
                api_url: url.to_owned(),
                ..Site::default()
            };
            site.save(folder.path(), &name, None).unwrap();
            names.push(name);
        }
        let wanted = [
            "jira-example-com-one",
            "jira-example-com-two",
            "jira-example-com",
            "jira-example-com-2",
            // The first site again.
            "jira-example-com-one",
        ];
        assert_eq!(names, wanted);
    }
}
