//! Forms of issues that other generated issues do not have: subtasks, links, long texts, nested
//! lists, and issues that were moved to another project.

use serde_json::{Value, json};

use super::{World, document, link_types, type_of};

impl World {
    /// Gives about half of the issues one of these forms, drawn from the generator. Times of change
    /// stay.
    pub(super) fn vary(&mut self) {
        let ids: Vec<u64> = self.issues.keys().copied().collect();
        let mut earlier: Vec<u64> = Vec::new();
        for id in ids {
            let updated = self.updated_ms(id);
            match self.below(100) {
                0..10 => self.make_subtask(id, &earlier),
                10..20 => self.link_to_earlier(id, &earlier),
                20..22 => {
                    let levels = 4 + self.below(12);
                    self.put_field(id, "description", nested_lists(levels));
                }
                22..52 => {
                    // The logarithm of the length is distributed like the sum of three dice.
                    let words = 1 << (self.below(4) + self.below(4) + self.below(4));
                    let text = self.words(words);
                    self.put_field(id, "description", document(&text));
                }
                52..54 => self.move_to_next_project(id),
                _ => {}
            }
            self.touch(id, updated);
            earlier.push(id);
        }
    }

    fn field(&self, id: u64, name: &str) -> Value {
        let issue = self.issues.get(&id);
        let value = issue.and_then(|issue| issue.fields.get(name));
        value.cloned().unwrap_or_default()
    }

    fn put_field(&mut self, id: u64, name: &str, value: Value) {
        if let Some(issue) = self.issues.get_mut(id) {
            issue.fields.insert(name.to_owned(), value);
        }
    }

    /// An issue as a part of another one.
    fn reference(&self, id: u64) -> Value {
        let key = self.issues.get(&id).map(|issue| issue.key.clone());
        json!({"id": id.to_string(), "key": key,
            "fields": {"summary": self.field(id, "summary")}})
    }

    /// Makes an issue a subtask of an earlier issue of its project, if there is one.
    fn make_subtask(&mut self, id: u64, earlier: &[u64]) {
        let project = self.field(id, "project");
        let parents = earlier.iter().filter(|other| {
            let is_subtask = self.field(**other, "issuetype")["subtask"] == true;
            !is_subtask && self.field(**other, "project") == project
        });
        let parents: Vec<u64> = parents.copied().collect();
        let at = self.below(parents.len());
        if let Some(parent) = parents.get(at) {
            let parent = self.reference(*parent);
            self.put_field(id, "parent", parent);
            self.put_field(id, "issuetype", type_of("Subtask"));
        }
    }

    /// Links an issue to an earlier one, if there is one.
    fn link_to_earlier(&mut self, id: u64, earlier: &[u64]) {
        let at = self.below(earlier.len());
        let Some(other) = earlier.get(at).copied() else {
            return;
        };
        let types = link_types();
        let at = self.below(types.len());
        let kind = types.get(at).cloned().unwrap_or_default();
        let link = self.new_id().to_string();
        for (issue, end, linked) in [(id, "outwardIssue", other), (other, "inwardIssue", id)] {
            let mut links = self.list_of(issue, "issuelinks");
            links.push(json!({"id": link, "type": kind, end: self.reference(linked)}));
            self.put_field(issue, "issuelinks", links.into());
        }
        self.index(other, self.updated_ms(other));
    }

    /// Moves an issue to the project after its own, if there are two.
    fn move_to_next_project(&mut self, id: u64) {
        let own = self.issues.get(&id).map(|issue| issue.project);
        let mut others = self.projects.keys().copied();
        let other = others.find(|project| own.is_some_and(|own| own < *project));
        if let Some(other) = other {
            self.relocate(id, other);
        }
    }
}

/// A document of lists within lists.
fn nested_lists(levels: usize) -> Value {
    let mut content = document("innermost")["content"].clone();
    for _ in 0..levels {
        let item = json!({"type": "listItem", "content": content});
        content = json!([{"type": "bulletList", "content": [item]}]);
    }
    json!({"type": "doc", "version": 1, "content": content})
}
