//! The settings of a server: one table of keys, each with its name, unit, default and meaning, for
//! flags, environment, file and documentation.
//!
//! The caller that fills the structure decides which source wins (the command: flag,
//! environment, file, default).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use weir_store::units::{self, UnitError};
use weir_store::{OpenOptions, Scrub};

/// An address to listen on: `HOST:PORT`, `PORT` or `:PORT` on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::new("an address such as 127.0.0.1:7070, [::1]:7070 or 7070");
        let text = text.trim();
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        // For a host name, the first address that it resolves to.
        let mut found = text.to_socket_addrs().map_err(|_| wrong())?;
        found.next().map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value that a key does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key accepts values of another kind.
    #[error("it must be {wanted}")]
    Wanted {
        /// The values that the key accepts.
        wanted: &'static str,
    },
    /// The key accepts a duration or a size.
    #[error(transparent)]
    Unit(#[from] UnitError),
}

impl KeyError {
    const fn new(wanted: &'static str) -> Self {
        Self::Wanted { wanted }
    }
}

/// One setting. `set` parses a text such as `127.0.0.1:7070`, `30s`, `64MiB` or `true`; `get`
/// formats a value as text that `set` accepts.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name in lower case, words joined by `_`. The key `a_b` is the flag `--a-b`, the variable
    /// `WEIR_SERVE_A_B`, and `a_b` under `[serve]` in the file.
    pub name: &'static str,
    /// Meaning of the setting, in one line.
    pub about: &'static str,
    /// Parses a text and stores the value in the configuration.
    pub set: fn(&mut ServerConfig, &str) -> Result<(), KeyError>,
    /// The current value as text.
    pub get: fn(&ServerConfig) -> String,
}

/// A value that can be parsed from a text.
trait Setting: Sized {
    fn read(text: &str) -> Result<Self, KeyError>;
    fn show(&self) -> String;
}

impl Setting for bool {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(KeyError::new("true or false")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for usize {
    fn read(text: &str) -> Result<Self, KeyError> {
        text.parse().map_err(|_| KeyError::new("a whole number"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for Option<Address> {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "off" | "none" => Ok(None),
            _ => text.parse().map(Some),
        }
    }

    fn show(&self) -> String {
        self.as_ref()
            .map_or_else(|| "off".to_owned(), ToString::to_string)
    }
}

impl Setting for Duration {
    fn read(text: &str) -> Result<Self, KeyError> {
        Ok(units::duration(text)?)
    }

    fn show(&self) -> String {
        match self.as_millis() {
            ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
            ms => format!("{ms}ms"),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub usize);

impl Setting for Size {
    fn read(text: &str) -> Result<Self, KeyError> {
        let bytes = usize::try_from(units::size(text)?);
        bytes
            .map(Self)
            .map_err(|_| KeyError::new("a size that fits in the address space"))
    }

    fn show(&self) -> String {
        match self.0 {
            n if n != 0 && n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
            n if n != 0 && n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
            n => n.to_string(),
        }
    }
}

impl Setting for Option<Size> {
    fn read(text: &str) -> Result<Self, KeyError> {
        if text == "auto" {
            return Ok(None);
        }
        match Size::read(text)? {
            Size(0) => Err(KeyError::new("a size above 0, or auto")),
            size => Ok(Some(size)),
        }
    }

    fn show(&self) -> String {
        self.map_or_else(|| "auto".to_owned(), |size| size.show())
    }
}

impl Setting for Option<PathBuf> {
    fn read(text: &str) -> Result<Self, KeyError> {
        Ok(match text {
            "" | "off" | "none" => None,
            path => Some(path.into()),
        })
    }

    fn show(&self) -> String {
        let path = self.as_ref().map(|path| path.display().to_string());
        path.unwrap_or_else(|| "off".to_owned())
    }
}

impl Setting for Option<bool> {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "auto" => Ok(None),
            _ => bool::read(text)
                .map(Some)
                .map_err(|_| KeyError::new("true, false or auto")),
        }
    }

    fn show(&self) -> String {
        self.map_or_else(|| "auto".to_owned(), |on| on.to_string())
    }
}

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The server requests none.
    #[default]
    Off,
    /// The server requests one, and verifies a certificate that is presented.
    Optional,
    /// The server refuses connections without one.
    Required,
}

impl Setting for ClientCertificates {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "off" => Ok(Self::Off),
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err(KeyError::new("off, optional or required")),
        }
    }

    fn show(&self) -> String {
        let name = match self {
            Self::Off => "off",
            Self::Optional => "optional",
            Self::Required => "required",
        };
        name.to_owned()
    }
}

/// Limit of what a caller may use in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// No limit for clients on this machine, and a high limit for others.
    #[default]
    Auto,
    /// No limit.
    Off,
    /// Units a second.
    Units(u64),
}

impl Rate {
    /// Requests per second from another machine, by default.
    pub(crate) const REQUESTS: u64 = 100_000;
    /// Bytes per second from another machine, by default.
    pub(crate) const BYTES: u64 = 256 << 20;
    /// Fuel per second from another machine, by default: about half of what one processor burns.
    pub(crate) const FUEL: u64 = 1_000_000_000;

    /// Returns the limit for a caller on this machine (`local`) or on another machine.
    pub(crate) fn units(self, local: bool, auto: u64) -> Option<u64> {
        match self {
            Self::Auto => (!local).then_some(auto),
            Self::Off => None,
            Self::Units(units) => Some(units),
        }
    }
}

impl Setting for Rate {
    fn read(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::new("a number per second such as 1000 or 16MiB, off or auto");
        match text {
            "auto" => Ok(Self::Auto),
            "off" | "none" => Ok(Self::Off),
            _ => {
                let Size(units) = Size::read(text).map_err(|_| wrong())?;
                let units = u64::try_from(units).ok().filter(|units| *units > 0);
                units.map(Self::Units).ok_or_else(wrong)
            }
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Off => "off".to_owned(),
            Self::Units(units) => units.to_string(),
        }
    }
}

impl Setting for String {
    fn read(text: &str) -> Result<Self, KeyError> {
        let is_host = text.len() <= 200 && !text.contains([' ', ',', '/', '@']);
        let host = is_host.then(|| text.to_owned());
        host.ok_or_else(|| KeyError::new("a host name or an IP address without port"))
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Setting for Vec<String> {
    fn read(text: &str) -> Result<Self, KeyError> {
        let names = text.split(',').map(str::trim);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect())
    }

    fn show(&self) -> String {
        self.join(",")
    }
}

/// Generates the structure, its default and its table from one list.
macro_rules! config {
    ($($name:ident: $type:ty = $default:expr, $about:literal;)*) => {
        /// The settings of a server. [`ServerConfig::KEYS`] has their names, units and defaults.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(clippy::struct_excessive_bools, reason = "each is an independent setting")]
        #[allow(clippy::doc_markdown, reason = "the text is also that of the help")]
        pub struct ServerConfig {
            $(#[doc = $about] pub $name: $type,)*
        }

        impl Default for ServerConfig {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl ServerConfig {
            /// All keys, in the order in which they are documented.
            pub const KEYS: &'static [Key] = &[$(Key {
                name: stringify!($name),
                about: $about,
                set: |config, text| {
                    config.$name = Setting::read(text)?;
                    Ok(())
                },
                get: |config| Setting::show(&config.$name),
            },)*];
        }
    };
}

const fn loopback(port: u16) -> Address {
    Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

config! {
    http: Option<Address> = Some(loopback(7070)), "Address of the HTTP port, or off";
    native: Option<Address> = Some(loopback(7071)), "Address of the native port, or off";
    peer: Option<Address> = None, "Address of the port for the other nodes of a cluster, or off";
    peer_cert: Option<PathBuf> = None, "File with the certificate of this node for the peer port and the intermediate certificates, PEM (weir cert issue --for node)";
    peer_key: Option<PathBuf> = None, "File with the private key of peer_cert, PEM";
    peer_ca: Option<PathBuf> = None, "File with the authority that signs the certificates of all nodes, PEM; it must sign no other certificates";
    join: Vec<String> = Vec::new(), "Peer addresses, HOST:PORT, of nodes of the cluster that this node joins if its directory is empty";
    node: usize = 0, "Number of this node when it joins a cluster with an empty directory; 0: the cluster chooses it";
    advertise: String = String::new(), "Host name or IP address that the server reports to clients and to other nodes; empty: the addresses of its ports";
    socket: Option<PathBuf> = None, "Unix socket of the native protocol for processes of the same user; off: no socket; weir serve by default: weir.sock in the directory";
    threads: usize = 0, "Number of threads that serve requests; 0: one for each processor";
    identities: Option<PathBuf> = None, "File with the accepted tokens and certificates and their rights; off: every client may do everything";
    tls_cert: Option<PathBuf> = None, "File with the certificate of the server and the intermediate certificates, PEM";
    tls_key: Option<PathBuf> = None, "File with the private key of tls_cert, PEM";
    tls_client: ClientCertificates = ClientCertificates::Off, "Whether clients must present a certificate: off, optional or required";
    tls_client_ca: Option<PathBuf> = None, "File with the authority that signs the certificates of clients, PEM";
    tls12: bool = false, "Accept TLS 1.2 in addition to TLS 1.3";
    audit: Option<bool> = None, "Record denied and administrative requests in the topic .weir.audit; auto: if identities is set";
    rate_requests: Rate = Rate::Auto, "Maximum requests per second of one principal or address; off: no limit; auto: 100,000, and no limit for clients on this machine";
    rate_bytes: Rate = Rate::Auto, "Maximum bytes per second of the requests of one principal or address; off: no limit; auto: 256MiB, and no limit for clients on this machine";
    rate_fuel: Rate = Rate::Auto, "Maximum fuel per second of programs for one principal or address; off: no limit; auto: 1,000,000,000, and no limit for clients on this machine";
    program_fuel_max: usize = 10_000_000, "Highest fuel_max that a topic may have, for one call of its program; 2,000,000 (the default of a topic) to 1,000,000,000";
    sessions_per_principal_max: usize = 1024, "Maximum sessions of one principal in 24 hours; a store has at most 4,096 in total";
    insecure_no_auth: bool = false, "Listen without identities at addresses that other machines can reach";
    insecure_no_tls: bool = false, "Listen without TLS at addresses that other machines can reach";
    hosts: Vec<String> = Vec::new(), "Host names that requests may use for the server, in addition to those of loopback; separated by commas";
    cors_origins: Vec<String> = Vec::new(), "Origins of web pages whose scripts may use the server; separated by commas";
    connections_max: usize = 10_000, "Maximum open connections of each port";
    connections_unauthenticated_max: usize = 1024, "Maximum open connections of all ports that have no accepted request yet; above this, the server closes the oldest of them";
    connections_per_address_max: usize = 1024, "Maximum open connections of each port from one IPv4 address or one IPv6 /64 network";
    memory_max: Option<Size> = None, "Memory from which the budgets are computed; auto: the smallest limit of control groups, address space and machine";
    bodies_budget: Option<Size> = None, "Maximum bytes of incomplete bodies and packets of all connections; auto: an eighth of the memory, 4 MiB to 256 MiB";
    answers_budget: Option<Size> = None, "Maximum bytes of responses that clients have not received yet, of all connections; auto: an eighth of the memory, 4 MiB to 256 MiB";
    request_line_max: Size = Size(8 << 10), "Maximum size of a request line";
    head_max: Size = Size(32 << 10), "Maximum size of all header fields together";
    head_fields_max: usize = 100, "Maximum number of header fields";
    payload_max: Size = Size(16 << 20), "Maximum size of one payload; the store accepts at most 64MiB";
    body_max: Size = Size(64 << 20), "Maximum size of a request body";
    json_max: Size = Size(1 << 20), "Maximum size of a JSON body that the server parses";
    head_timeout: Duration = Duration::from_secs(10), "Maximum time from the first byte of a request to the end of its header fields";
    idle_timeout: Duration = Duration::from_secs(75), "Maximum idle time of a connection between two requests";
    body_timeout: Duration = Duration::from_secs(20), "Maximum time between two pieces of a request body";
    body_rate_min: Size = Size(1 << 10), "Minimum average rate of a request body, in bytes per second";
    body_rate_after: Duration = Duration::from_secs(10), "Age of a request body from which body_rate_min applies";
    store_timeout: Duration = Duration::from_secs(30), "Maximum time of a write in the store";
    write_timeout: Duration = Duration::from_secs(30), "Maximum time without progress while a client reads a response";
    heartbeat: Duration = Duration::from_secs(15), "Interval of the heartbeats to a client that follows a topic without new records";
    tail_max_age: Duration = Duration::from_mins(10), "Time after which the server asks a client that follows a topic to reconnect";
    lame_duck: Duration = Duration::ZERO, "Time after SIGTERM in which /readyz returns 503 while requests are still served, for load balancers";
    drain: Duration = Duration::from_secs(30), "Maximum time for open requests during a shutdown";
    backups: Option<PathBuf> = None, "Directory below which weir serve writes a backup of the store on SIGUSR1; off: no backups";
    snapshot_log: Size = Size(1 << 30), "Bytes of log after which the next snapshot is written";
    log_keep: Size = Size(256 << 20), "Newest bytes of log that are retained when a snapshot permits a purge";
    scrub_rate: Size = Size(8 << 20), "Bytes per second that a background scrub reads to find damage; 0: no scrub";
    scrub_every: Duration = Duration::from_hours(24), "Time between the starts of two scrubs of the whole store";
    volatile: bool = false, "Allow a store on a file system in memory or on a network, which may lose synced data";
    believe_clock: bool = false, "Accept the clock of this machine at once, even if it says that the store was closed for a long time";
    access_log: bool = false, "Write a log line for each request";
}

/// Settings with which a server refuses to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// Other machines can reach an address that lacks a protection.
    Exposed {
        address: String,
        missing: MissingProtection,
    },
    /// Two settings contradict each other, or the server cannot apply one of them.
    Contradiction { what: &'static str },
}

/// The protection that an address lacks although other machines can reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingProtection {
    /// Encryption, and proof of the identity of the server.
    Tls,
    /// Identities of the clients that may connect.
    Identities,
    /// Encryption between the nodes of a cluster.
    PeerTls,
}

impl fmt::Display for MissingProtection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => {
                "TLS is off; set --tls-cert and --tls-key (`weir cert ca` and `weir cert issue` \
                 create the files), or set --insecure-no-tls if nobody else can read or change the \
                 traffic"
            }
            Self::Identities => {
                "clients need no credentials; set --identities (`weir token create` creates the \
                 file), or set --insecure-no-auth to allow every client everything"
            }
            Self::PeerTls => {
                "the peer port has no TLS; set --peer-cert, --peer-key and --peer-ca \
                 (`weir cert issue --for node` creates the files), or set --insecure-no-tls in a \
                 network that nobody else can reach"
            }
        })
    }
}

impl ServerConfig {
    /// Applies the settings that concern the store to `options`.
    pub fn tune(&self, options: &mut OpenOptions) {
        options.program_fuel_max = self.program_fuel_max as u64;
        options.snapshot_log_bytes = self.snapshot_log.0 as u64;
        options.log_keep_bytes = Some(self.log_keep.0 as u64);
        options.scrub = (self.scrub_rate.0 > 0).then_some(Scrub {
            bytes_per_s: self.scrub_rate.0 as u64,
            every: self.scrub_every,
        });
        options.believe_clock = self.believe_clock;
    }

    /// Checks the rules that involve more than one key.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for address in [self.http, self.native].into_iter().flatten() {
            if address.0.ip().is_loopback() {
                continue;
            }
            let tls = self.tls_cert.is_some() || self.insecure_no_tls;
            let authenticated = self.identities.is_some() || self.insecure_no_auth;
            for (safe, missing) in [
                (tls, MissingProtection::Tls),
                (authenticated, MissingProtection::Identities),
            ] {
                if !safe {
                    let address = address.to_string();
                    return Err(ConfigError::Exposed { address, missing });
                }
            }
        }
        if let Some(peer) = self.peer
            && !peer.0.ip().is_loopback()
            && self.peer_cert.is_none()
            && !self.insecure_no_tls
        {
            let (address, missing) = (peer.to_string(), MissingProtection::PeerTls);
            return Err(ConfigError::Exposed { address, missing });
        }
        if self.peer.is_none() && !self.join.is_empty() {
            let what = "join needs peer: set the address of the port for the other nodes";
            return Err(ConfigError::Contradiction { what });
        }
        let peer_files = [&self.peer_cert, &self.peer_key, &self.peer_ca];
        if peer_files.iter().any(|file| file.is_some())
            != peer_files.iter().all(|file| file.is_some())
        {
            let what = "peer_cert, peer_key and peer_ca belong together: set all or none";
            return Err(ConfigError::Contradiction { what });
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let what = "tls_cert and tls_key belong together: set both or none";
            return Err(ConfigError::Contradiction { what });
        }
        if self.tls_client != ClientCertificates::Off {
            for (missing, what) in [
                (
                    self.tls_cert.is_none(),
                    "tls_client needs tls_cert and tls_key: without TLS, a client cannot present a certificate",
                ),
                (
                    self.tls_client_ca.is_none(),
                    "tls_client needs tls_client_ca: set the authority that signs the certificates of clients",
                ),
                (
                    self.identities.is_none(),
                    "tls_client needs identities: the file defines the rights of each certificate",
                ),
            ] {
                if missing {
                    return Err(ConfigError::Contradiction { what });
                }
            }
        } else if self.tls_client_ca.is_some() {
            let what = "tls_client_ca needs tls_client: set it to optional or required";
            return Err(ConfigError::Contradiction { what });
        }
        let can_share = self.http.is_none_or(|http| http.0.port() == 0);
        if self.http == self.native && !can_share {
            let what = "http and native have the same address: set different ports";
            return Err(ConfigError::Contradiction { what });
        }
        if self.http.is_none() && self.native.is_none() && self.socket.is_none() {
            let what = "all ports are off: set http, native or socket";
            return Err(ConfigError::Contradiction { what });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn each_key_reads_what_it_writes() {
        for key in ServerConfig::KEYS {
            let mut config = ServerConfig::default();
            let text = (key.get)(&config);
            (key.set)(&mut config, &text).unwrap();
            assert_eq!(config, ServerConfig::default(), "{}", key.name);
        }
    }

    #[test]
    fn texts_have_units() {
        let key = |name: &str| {
            ServerConfig::KEYS
                .iter()
                .find(|key| key.name == name)
                .unwrap()
        };
        let mut config = ServerConfig::default();
        (key("drain").set)(&mut config, "1500ms").unwrap();
        (key("body_max").set)(&mut config, "1GiB").unwrap();
        (key("http").set)(&mut config, ":0").unwrap();
        assert_eq!(config.drain, Duration::from_millis(1500));
        assert_eq!(config.body_max, Size(1 << 30));
        assert_eq!(config.http.unwrap().0.to_string(), "127.0.0.1:0");
        for (name, text) in [
            ("drain", "30"),
            ("body_max", "1GB"),
            ("http", "x"),
            ("threads", "-1"),
        ] {
            assert!(
                (key(name).set)(&mut config, text).is_err(),
                "{name} = {text}"
            );
        }
    }

    #[test]
    fn an_exposed_address_needs_tls_and_identities() {
        let mut config = ServerConfig {
            http: "0.0.0.0:0".parse().ok(),
            ..ServerConfig::default()
        };
        assert!(matches!(
            config.check(),
            Err(ConfigError::Exposed {
                missing: MissingProtection::Tls,
                ..
            })
        ));
        config.insecure_no_tls = true;
        assert!(matches!(
            config.check(),
            Err(ConfigError::Exposed {
                missing: MissingProtection::Identities,
                ..
            })
        ));
        config.insecure_no_auth = true;
        config.check().unwrap();
    }
}
