//! Rules about the manifests of our own crates.

use super::Findings;
use super::imports::FEATURES;
use super::rust_source::code;
use crate::metadata::Package;
use crate::tree;
use toml::Table;

/// Checks every member of the workspace.
pub(super) fn check(
    packages: &[Package],
    files: &[String],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    for name in unused(&tree::text("Cargo.toml")?.parse()?, packages) {
        let what = format!("no member requires the workspace dependency {name}");
        findings.wrong("Cargo.toml", &what);
    }
    for package in packages.iter().filter(|package| package.member) {
        let place = format!("{}/Cargo.toml", package.folder);
        manifest(&place, &tree::text(&place)?.parse()?, findings);
        if ["", "placeholder"].contains(&package.description.as_str()) {
            findings.wrong(&place, "`description` is missing or a placeholder");
        }
        // Test suites are named after folders. A suite of a language has the name of the language.
        let folder = match package.folder.strip_prefix("bindings/") {
            Some(language) => format!("weir-{language}"),
            None => package.folder.rsplit('/').next().unwrap_or("").to_owned(),
        };
        if folder != package.name {
            findings.wrong(&place, &format!("the folder is not named {}", package.name));
        }
        let mut sources = Vec::new();
        for name in files {
            let inside = name
                .strip_prefix(&package.folder)
                .is_some_and(|n| n.starts_with('/'));
            if inside && tree::has_extension(name, "rs") {
                sources.push(code(&tree::text(name)?));
            }
        }
        for dependency in &package.dependencies {
            let for_features = [package.name.as_str(), &dependency.name]
                .iter()
                .any(|name| FEATURES.contains(name));
            if !for_features && !uses(&sources, &dependency.ident) {
                let what = format!("requires {} and never uses it in code", dependency.name);
                findings.wrong(&place, &what);
            }
        }
    }
    Ok(())
}

/// Whether a source names the crate, at the start of a path or in a `use`. A variable or a module
/// of that name does not count.
fn uses(sources: &[String], ident: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let names_crate = |source: &str, at: usize| {
        let (before, rest) = source.split_at(at);
        let after = &rest[ident.len()..];
        let is_imported = before.ends_with("use ") && !after.starts_with(is_part);
        !before.ends_with(is_part) && (after.starts_with("::") || is_imported)
    };
    sources.iter().any(|source| {
        let mut places = source.match_indices(ident);
        places.any(|(at, _)| names_crate(source, at))
    })
}

/// Foreign crates in the `[workspace.dependencies]` of `table` that no member uses.
fn unused(table: &Table, packages: &[Package]) -> Vec<String> {
    let shared = table
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(toml::Value::as_table);
    let members = || packages.iter().filter(|package| package.member);
    let is_required = |name: &str| {
        members().any(|member| member.name == name)
            || members()
                .flat_map(|member| &member.dependencies)
                .any(|dependency| dependency.name == name)
    };
    let names = shared.into_iter().flat_map(Table::keys);
    names.filter(|name| !is_required(name)).cloned().collect()
}

/// Checks that lints, edition and licence are those of the workspace. A crate without that line
/// would silently have none of the lints.
fn manifest(place: &str, table: &Table, findings: &mut Findings) {
    let inherited = |part: &str, field: Option<&str>| {
        let value = table.get(part);
        let value = field.map_or(value, |field| value.and_then(|part| part.get(field)));
        value
            .and_then(|value| value.get("workspace"))
            .and_then(toml::Value::as_bool)
            == Some(true)
    };
    if !inherited("lints", None) {
        findings.wrong(place, "`[lints] workspace = true` is missing");
    }
    for field in ["edition", "rust-version", "license"] {
        if !inherited("package", Some(field)) {
            findings.wrong(place, &format!("`{field}.workspace = true` is missing"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{manifest, uses};
    use crate::tidy::Findings;

    #[test]
    fn a_dependency_is_used_when_code_names_it() {
        let sources = [
            "use serde_json::Value;".to_owned(),
            "fn toml_like() {}".to_owned(),
            "use libc;\nlet bytes = crate::bytes::hex(bytes);".to_owned(),
        ];
        assert!(uses(&sources, "serde_json"));
        assert!(uses(&sources, "libc"));
        assert!(!uses(&sources, "toml"));
        assert!(!uses(&sources, "bytes"));
    }

    #[test]
    fn a_manifest_inherits_what_all_share() {
        let whole = "[package]\nedition.workspace = true\nrust-version.workspace = true\n\
                     license.workspace = true\n[lints]\nworkspace = true\n";
        let check = |text: &str, expected: usize| {
            let mut findings = Findings::default();
            manifest("a", &text.parse().unwrap(), &mut findings);
            assert_eq!(findings.wrong.len(), expected, "{:?}", findings.wrong);
        };
        check(whole, 0);
        check(&whole.replace("[lints]", "[lines]"), 1);
        check(
            &whole.replace("edition.workspace = true", "edition = \"2021\""),
            1,
        );
    }
}
