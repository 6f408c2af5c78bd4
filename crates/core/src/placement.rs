//! Which nodes serve which locations: labels and roots, compared as text.

use crate::event::body::Location;
use serde::{Deserialize, Serialize};

/// What a node serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serves {
    /// Labels the node has, for example `host=9f3c…` or `gpu`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Folders the node has; none means every folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
}

/// Why a node does not serve a location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// A label is missing.
    #[error("it needs a node with label `{0}`")]
    Label(String),
    /// No root covers the folder.
    #[error("it needs a node whose roots hold `{0}`")]
    Root(String),
}

impl Serves {
    /// Everything, on any terms but labels.
    pub fn everywhere() -> Self {
        Self::default()
    }

    /// Does the node serve the location? The first reason why not.
    pub fn check(&self, location: &Location) -> Result<(), Unserved> {
        let missing = location
            .requires
            .iter()
            .find(|label| !self.labels.contains(label));
        if let Some(label) = missing {
            return Err(Unserved::Label(label.clone()));
        }
        let covered = self.roots.is_empty()
            || self
                .roots
                .iter()
                .any(|root| covers(root, &location.directory));
        if covered {
            Ok(())
        } else {
            Err(Unserved::Root(location.directory.clone()))
        }
    }
}

/// Is `directory` the folder `root` or below it? Both are absolute real paths.
fn covers(root: &str, directory: &str) -> bool {
    let root = root.trim_end_matches('/');
    directory
        .strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(directory: &str, requires: &[&str]) -> Location {
        Location {
            directory: directory.to_owned(),
            requires: requires.iter().map(|label| (*label).to_owned()).collect(),
        }
    }

    fn node(labels: &[&str], roots: &[&str]) -> Serves {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Serves {
            labels: owned(labels),
            roots: owned(roots),
        }
    }

    #[test]
    fn every_required_label_and_one_root_decide() {
        assert_eq!(Serves::everywhere().check(&location("/a/b", &[])), Ok(()));
        let shared = node(&["host=x", "gpu"], &["/srv/code/", "/data"]);
        for (directory, requires, expected) in [
            ("/srv/code", vec![], Ok(())),
            ("/srv/code/a", vec!["gpu"], Ok(())),
            ("/data/x", vec!["gpu", "host=x"], Ok(())),
            (
                "/srv/codex",
                vec![],
                Err(Unserved::Root("/srv/codex".to_owned())),
            ),
            (
                "/data",
                vec!["host=y"],
                Err(Unserved::Label("host=y".to_owned())),
            ),
        ] {
            assert_eq!(
                shared.check(&location(directory, &requires)),
                expected,
                "{directory}"
            );
        }
        assert_eq!(node(&[], &["/"]).check(&location("/anything", &[])), Ok(()));
    }
}
