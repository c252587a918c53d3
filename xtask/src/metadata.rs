//! Reads `cargo metadata`: the packages of the workspace and all dependencies.

use crate::steps::cargo;
use anyhow::{Context as _, ensure};
use serde_json::Value;

/// One package of the graph.
#[derive(Debug)]
pub(crate) struct Package {
    /// Name in its manifest.
    pub(crate) name: String,
    /// Version in its manifest.
    pub(crate) version: String,
    /// Description in one line; empty if there is none.
    pub(crate) description: String,
    /// Licence expression; empty if there is none.
    pub(crate) license: String,
    /// Origin of the package; `None` for packages of this tree.
    pub(crate) source: Option<String>,
    /// Whether it is a member of the workspace.
    pub(crate) member: bool,
    /// Folder of its manifest, relative to the root of the project; empty for foreign packages.
    pub(crate) folder: String,
    /// Dependencies in its manifest.
    pub(crate) dependencies: Vec<Dependency>,
    /// Root files of its targets, relative to the root, with the kind (`lib`, `bin`, `test`, …).
    pub(crate) targets: Vec<(String, String)>,
}

/// One line of a manifest's dependency tables.
#[derive(Debug)]
pub(crate) struct Dependency {
    /// Name of the required package.
    pub(crate) name: String,
    /// Name in the code of the dependent crate.
    pub(crate) ident: String,
    /// Whether it is a development dependency.
    pub(crate) dev: bool,
    /// Whether it is a build dependency.
    pub(crate) build: bool,
}

/// The complete graph of the workspace, as in the lock file.
pub(crate) fn load() -> anyhow::Result<Vec<Package>> {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed; is Cargo.lock up to date?"
    );
    let value: Value = serde_json::from_slice(&output.stdout)?;
    let members: Vec<&str> = list(&value, "workspace_members")
        .filter_map(Value::as_str)
        .collect();
    let root = format!(
        "{}/",
        value["workspace_root"]
            .as_str()
            .context("no workspace_root")?
    );
    list(&value, "packages")
        .map(|package| read(package, &members, &root))
        .collect()
}

fn read(package: &Value, members: &[&str], root: &str) -> anyhow::Result<Package> {
    let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let manifest = field("manifest_path");
    let id = package["id"].as_str().context("a package without id")?;
    let relative = |path: &str| path.strip_prefix(root).unwrap_or_default().to_owned();
    Ok(Package {
        name: field("name"),
        version: field("version"),
        description: field("description"),
        license: field("license"),
        source: package["source"].as_str().map(str::to_owned),
        member: members.contains(&id),
        folder: relative(manifest.strip_suffix("/Cargo.toml").unwrap_or_default()),
        dependencies: list(package, "dependencies")
            .map(|dependency| Dependency {
                name: dependency["name"].as_str().unwrap_or_default().to_owned(),
                ident: dependency["rename"]
                    .as_str()
                    .or_else(|| dependency["name"].as_str())
                    .unwrap_or_default()
                    .replace('-', "_"),
                dev: dependency["kind"].as_str() == Some("dev"),
                build: dependency["kind"].as_str() == Some("build"),
            })
            .collect(),
        targets: list(package, "targets")
            .map(|target| {
                let kind = list(target, "kind")
                    .next()
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                (
                    relative(target["src_path"].as_str().unwrap_or_default()),
                    kind.to_owned(),
                )
            })
            .collect(),
    })
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[name]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
}
