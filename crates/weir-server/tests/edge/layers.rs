//! The modules of the crate form layers: each imports only modules of the layers before its own.

use std::path::{Path, PathBuf};

/// The layers, lowest first, as the documentation of the crate lists them.
const LAYERS: [&[&str]; 11] = [
    &["config", "phase"],
    &["limits", "metrics"],
    &["http", "security"],
    &["error", "logs", "queued_write", "sessions", "wake_batches"],
    &["cluster", "descriptors", "local", "opening"],
    &["connections"],
    &["shared"],
    &["claiming", "listing", "scrape", "status"],
    &["native", "resources"],
    &["service"],
    &["server"],
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns the names that follow `crate::` in the code, without tests.
fn imports(text: &str) -> Vec<String> {
    let (code, _) = text
        .split_once("#[cfg(test)]\nmod tests")
        .unwrap_or((text, ""));
    let code: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let mut names = Vec::new();
    for rest in code.join("\n").split("crate::").skip(1) {
        let group = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let list = group.map_or(rest, |(list, _)| list);
        let ends = |byte: char| !(byte.is_ascii_lowercase() || byte == '_');
        match group {
            Some(_) => names.extend(list.split(',').map(|name| name.trim().to_owned())),
            None => names.push(list.split(ends).next().unwrap_or_default().to_owned()),
        }
    }
    names
}

#[test]
fn modules_import_only_from_lower_layers() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut count = 0;
    for path in &files {
        let inside = path.strip_prefix(&root).unwrap();
        let module = inside.components().next().unwrap().as_os_str();
        let module = module.to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("{module} has no layer"));
        for name in imports(&std::fs::read_to_string(path).unwrap()) {
            let Some(other) = layer(&name).filter(|_| name != module) else {
                continue;
            };
            assert!(other < own, "{} imports {name}", inside.display());
            count += 1;
        }
    }
    assert!(count > 200, "{count}");
}
