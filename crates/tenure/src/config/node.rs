//! `[node]`: how this process is reached by others, and what it serves.

use super::origin::{Origin, Setting};
use super::raw::{At, RawConfig};
use crate::exit::{CliError, CliResult};
use crate::machine;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use tenure_core::placement::{MODELS, Serves, covers};

/// This process among other nodes.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// What people call it.
    pub name: Option<Setting<String>>,
    /// Where it listens.
    pub listen: Setting<SocketAddr>,
    /// What it tells others.
    pub advertise: Option<Setting<String>>,
    /// Labels beside the machine's.
    pub labels: Setting<Vec<String>>,
    /// Folders that every node has which declares them.
    pub roots: Setting<Vec<String>>,
    /// The machine's name.
    pub host_label: Setting<String>,
}

type One<'a> = &'a dyn Fn(&dyn Fn(&RawConfig) -> Option<&At<String>>) -> Option<Setting<String>>;
type Many<'a> =
    &'a dyn Fn(&dyn Fn(&RawConfig) -> Option<&At<Vec<String>>>) -> Option<Setting<Vec<String>>>;

impl NodeConfig {
    /// From the files.
    ///
    /// # Errors
    /// A usage error with the place of a value that cannot be used.
    pub fn resolve(one: One<'_>, many: Many<'_>) -> CliResult<Self> {
        let nothing = || Setting::new(Vec::new(), Origin::Default);
        let listen = match one(&|raw| raw.node.listen.as_ref()) {
            Some(Setting { value, origin }) => {
                let address = value.parse().map_err(|_| {
                    CliError::usage(format!(
                        "{origin}: `node.listen` is \"{value}\"; it must be an address such as 10.0.0.5:7717"
                    ))
                })?;
                Setting::new(address, origin)
            }
            None => Setting::new(
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
                Origin::Default,
            ),
        };
        let labels = many(&|raw| raw.node.labels.as_ref()).unwrap_or_else(nothing);
        let roots = many(&|raw| raw.node.roots.as_ref()).unwrap_or_else(nothing);
        let placed = |error: CliError, origin: &Origin| {
            CliError::usage(format!("{origin}: {}", error.message))
        };
        for text in &labels.value {
            own_label(text).map_err(|e| placed(e, &labels.origin))?;
        }
        for root in &roots.value {
            absolute(root).map_err(|e| placed(e, &roots.origin))?;
        }
        let host_label = one(&|raw| raw.node.host_label.as_ref());
        Ok(Self {
            name: one(&|raw| raw.node.name.as_ref()),
            listen,
            advertise: one(&|raw| raw.node.advertise.as_ref()),
            labels,
            roots,
            host_label: host_label
                .unwrap_or_else(|| Setting::new(machine::name(), Origin::Default)),
        })
    }

    /// The label that only this machine's nodes have.
    pub fn host(&self) -> String {
        format!("{}={}", machine::HOST, self.host_label.value)
    }

    /// What a node of this machine serves that declares these labels and roots.
    pub fn serves(&self, labels: &[String], roots: &[String]) -> Serves {
        let mut all = vec![self.host()];
        for label in self.labels.value.iter().chain(labels) {
            if !all.contains(label) {
                all.push(label.clone());
            }
        }
        Serves {
            labels: all,
            roots: roots.to_vec(),
        }
    }

    /// Is `directory` below a folder that every machine has at the same path?
    pub fn shares(&self, directory: &str) -> bool {
        self.roots.value.iter().any(|root| covers(root, directory))
    }

    /// For `tenure config`.
    pub fn lines(&self) -> Vec<(&'static str, String, Origin)> {
        let listed = |list: &[String]| {
            if list.is_empty() {
                "(none)".to_owned()
            } else {
                list.join(", ")
            }
        };
        let mut lines = vec![
            (
                "node.listen",
                self.listen.value.to_string(),
                self.listen.origin.clone(),
            ),
            (
                "node.labels",
                listed(&self.labels.value),
                self.labels.origin.clone(),
            ),
            (
                "node.roots",
                listed(&self.roots.value),
                self.roots.origin.clone(),
            ),
            (
                "node.host_label",
                self.host_label.value.clone(),
                self.host_label.origin.clone(),
            ),
        ];
        for (key, value) in [
            ("node.name", &self.name),
            ("node.advertise", &self.advertise),
        ] {
            lines.push(match value {
                Some(Setting { value, origin }) => (key, value.clone(), origin.clone()),
                None if key == "node.name" => (key, "node".to_owned(), Origin::Default),
                None => (key, "(none)".to_owned(), Origin::Default),
            });
        }
        lines
    }
}

/// Checks that `text` can be a label.
///
/// # Errors
/// A usage error that says how one is written.
pub fn label(text: &str) -> CliResult {
    let fine = text.split_once('=').is_some_and(|(key, value)| {
        let plain = |part: &str| {
            !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
        };
        plain(key) && plain(value)
    });
    if fine {
        Ok(())
    } else {
        Err(CliError::usage(format!(
            "`{}` is no label",
            crate::render::escape::safe_line(text)
        ))
        .hint("write KEY=VALUE, with letters, digits and -_./: in both"))
    }
}

/// Checks that `text` can be given to a node as a label.
///
/// # Errors
/// As [`label`]; or it is one of those a node sets by itself.
pub fn own_label(text: &str) -> CliResult {
    label(text)?;
    match text.split_once('=') {
        Some((key, _)) if [MODELS, "takes"].contains(&key) => Err(CliError::usage(format!(
            "`{text}` is no label to be given: a node sets `{key}=…` by itself"
        ))),
        _ => Ok(()),
    }
}

/// Checks that a root is an absolute path.
///
/// # Errors
/// A usage error.
pub fn absolute(root: &str) -> CliResult {
    if Path::new(root).is_absolute() {
        Ok(())
    } else {
        Err(CliError::usage(format!(
            "the root `{}` is not an absolute path",
            crate::render::escape::safe_line(root)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(roots: &[&str]) -> NodeConfig {
        let roots: Vec<String> = roots.iter().map(|r| (*r).to_owned()).collect();
        let mut config = NodeConfig::resolve(&|_| None, &|_| None).unwrap();
        config.roots.value = roots;
        config.host_label.value = "m1".to_owned();
        config
    }

    #[test]
    fn a_folder_is_shared_below_a_root() {
        let config = config(&["/srv/code"]);
        assert!(config.shares("/srv/code/a"));
        assert!(!config.shares("/srv/codex"));
        assert!(!config.shares("/home/me"));
    }

    #[test]
    fn a_node_always_has_its_machines_label_and_each_label_once() {
        let mut config = config(&[]);
        config.labels.value = vec!["zone=a".to_owned()];
        let serves = config.serves(&["gpu=yes".to_owned(), "zone=a".to_owned()], &[]);
        assert_eq!(serves.labels, ["host=m1", "zone=a", "gpu=yes"]);
        assert!(serves.roots.is_empty());
    }

    #[test]
    fn labels_and_roots_that_cannot_work_are_refused() {
        for good in ["a=b", "topology/zone=eu-1.a"] {
            own_label(good).unwrap();
        }
        for bad in ["", "a", "=b", "a=", "a=b c", "a=\u{1b}"] {
            assert!(
                label(bad).unwrap_err().to_string().contains("KEY=VALUE"),
                "{bad}"
            );
        }
        for own in ["models=work", "takes=asked"] {
            label(own).unwrap();
            let refused = own_label(own).unwrap_err().to_string();
            assert!(refused.contains("by itself"), "{refused}");
        }
        assert!(absolute("relative").is_err());
    }
}
