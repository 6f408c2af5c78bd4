//! Which nodes serve which sessions: labels, roots and providers of models, compared as text.

use crate::event::body::Location;
use crate::model::ModelRef;
use serde::{Deserialize, Serialize};

/// The key of the labels by which a node says whose models it can ask: `models=NAME` for each of its providers. A node
/// with no such label says nothing of it, and is taken to serve every model.
pub const MODELS: &str = "models";

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
    /// Something of the place is missing: all of it is named, so that nobody finds the second lack after mending the
    /// first.
    #[error("it needs a node{}", place(.labels, .root.as_deref()))]
    Place {
        /// Labels that are missing.
        labels: Vec<String>,
        /// The folder, when no root covers it.
        root: Option<String>,
    },
    /// The model's provider is not configured there, or its key is not at hand.
    #[error("it needs a node with provider `{0}` and its key")]
    Provider(String),
}

fn place(labels: &[String], root: Option<&str>) -> String {
    let quoted: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
    let mut words = match labels.len() {
        0 => String::new(),
        1 => format!(" with label {}", quoted[0]),
        _ => format!(" with labels {}", quoted.join(", ")),
    };
    if let Some(root) = root {
        words.push_str(&format!(" whose roots hold `{root}`"));
    }
    words
}

impl Unserved {
    /// What one node lacks and what another one lacks, together: a node that has it all is needed. Who serves the
    /// place and lacks the model alone tells the most.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Place { mut labels, root },
                Self::Place {
                    labels: more,
                    root: other,
                },
            ) => {
                labels.extend(more);
                labels.sort();
                labels.dedup();
                Self::Place {
                    labels,
                    root: root.or(other),
                }
            }
            (why @ Self::Provider(_), _) | (_, why) => why,
        }
    }
}

impl Serves {
    /// Everything, on any terms but labels.
    pub fn everywhere() -> Self {
        Self::default()
    }

    /// The same node, which can ask the models of these providers and of no others.
    #[must_use]
    pub fn asking<'a>(mut self, providers: impl IntoIterator<Item = &'a str>) -> Self {
        // The bare key says that this is the whole list, however short.
        self.labels.push(models_of(""));
        self.labels.extend(providers.into_iter().map(models_of));
        self
    }

    /// Does the node serve a session at this location that asks this model? What it lacks.
    pub fn check(&self, location: &Location, model: &ModelRef) -> Result<(), Unserved> {
        self.check_place(location)?;
        let list = models_of("");
        let tells = self.labels.iter().any(|label| label.starts_with(&list));
        if tells && !self.labels.contains(&models_of(&model.provider)) {
            return Err(Unserved::Provider(model.provider.clone()));
        }
        Ok(())
    }

    /// As [`Serves::check`], of a session that may wait to be moved. Where its place is not served, whoever has the one
    /// it moves to can settle what is open there, and carry the move out.
    ///
    /// # Errors
    /// What the node lacks: of the new place, where there is one.
    pub fn check_moving(
        &self,
        at: &Location,
        to: Option<&Location>,
        model: &ModelRef,
    ) -> Result<(), Unserved> {
        let here = self.check(at, model);
        match to {
            Some(to) if here.is_err() => self.check(to, model),
            _ => here,
        }
    }

    fn check_place(&self, location: &Location) -> Result<(), Unserved> {
        let missing = location.requires.iter();
        let missing = missing.filter(|label| !self.labels.contains(label));
        let labels: Vec<String> = missing.cloned().collect();
        let covered = self.roots.is_empty()
            || self
                .roots
                .iter()
                .any(|root| covers(root, &location.directory));
        if covered && labels.is_empty() {
            return Ok(());
        }
        let root = (!covered).then(|| location.directory.clone());
        Err(Unserved::Place { labels, root })
    }
}

fn models_of(provider: &str) -> String {
    format!("{MODELS}={provider}")
}

/// Is `directory` the folder `root` or below it? Both are absolute real paths.
pub fn covers(root: &str, directory: &str) -> bool {
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

    fn model(provider: &str) -> ModelRef {
        ModelRef {
            provider: provider.to_owned(),
            model: "m".to_owned(),
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
        let model = model("any");
        let lacks = |labels: &[&str], root: Option<&str>| {
            Err::<(), _>(Unserved::Place {
                labels: labels.iter().map(|label| (*label).to_owned()).collect(),
                root: root.map(str::to_owned),
            })
        };
        assert_eq!(
            Serves::everywhere().check(&location("/a/b", &[]), &model),
            Ok(())
        );
        let shared = node(&["host=x", "gpu"], &["/srv/code/", "/data"]);
        for (directory, requires, expected) in [
            ("/srv/code", vec![], Ok(())),
            ("/srv/code/a", vec!["gpu"], Ok(())),
            ("/data/x", vec!["gpu", "host=x"], Ok(())),
            ("/srv/codex", vec![], lacks(&[], Some("/srv/codex"))),
            (
                "/srv/codex",
                vec!["host=y", "gpu"],
                lacks(&["host=y"], Some("/srv/codex")),
            ),
            ("/data", vec!["host=y"], lacks(&["host=y"], None)),
        ] {
            assert_eq!(
                shared.check(&location(directory, &requires), &model),
                expected,
                "{directory}"
            );
        }
        let Err(why) = lacks(&["a=b", "c=d"], Some("/x")) else {
            panic!("it lacks something");
        };
        let words = "it needs a node with labels `a=b`, `c=d` whose roots hold `/x`";
        assert_eq!(why.to_string(), words);
        let (label, root) = (lacks(&["c=d", "a=b"], None), lacks(&["a=b"], Some("/x")));
        assert_eq!(label.unwrap_err().and(root.unwrap_err()), why);
        let root = node(&[], &["/"]);
        assert_eq!(root.check(&location("/anything", &[]), &model), Ok(()));
    }

    #[test]
    fn a_node_that_tells_whose_models_it_asks_serves_those_alone() {
        let lacks = |provider: &str| Err(Unserved::Provider(provider.to_owned()));
        let here = location("/a", &[]);
        let two = node(&["host=x"], &[]).asking(["one", "two"]);
        for (serves, provider, expected) in [
            (&two, "one", Ok(())),
            (&two, "two", Ok(())),
            // Neither a piece of a name nor no name at all.
            (&two, "on", lacks("on")),
            (&two, "three", lacks("three")),
            (&Serves::everywhere().asking([]), "one", lacks("one")),
            // It says nothing of it: an older node, or one that asks whatever comes.
            (&node(&["host=x"], &[]), "three", Ok(())),
        ] {
            assert_eq!(
                serves.check(&here, &model(provider)),
                expected,
                "{provider}"
            );
        }
        // Where the place is not served, that is what is said.
        let elsewhere = location("/a", &["gpu=yes"]);
        let label = Err(Unserved::Place {
            labels: vec!["gpu=yes".to_owned()],
            root: None,
        });
        assert_eq!(two.check(&elsewhere, &model("three")), label);
    }
}
