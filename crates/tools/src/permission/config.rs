//! The `[permissions]` table as it stands in a configuration file.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::mode::Mode;
use super::pattern::{Pattern, PatternError};

/// The rules of one tool: pattern → mode. The pattern `*` is the tool's catch-all.
pub(crate) type Table = BTreeMap<Pattern, Mode>;

/// The `[permissions]` table of one configuration file, checked, without defaults.
///
/// Every key but `outside` is a tool's name; its value is a mode for the whole tool or a table of patterns. See the
/// [module documentation](super) for the meaning of patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PermissionConfig {
    /// The mode for paths outside the workspace, when the file sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<Mode>,
    #[serde(flatten)]
    pub(crate) tools: BTreeMap<String, Table>,
}

impl PermissionConfig {
    /// The tools this file has rules for, so that a caller can warn of names it does not know.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// True when the file sets nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outside.is_none() && self.tools.is_empty()
    }

    /// Adds or replaces one rule, as a command-line option would.
    ///
    /// # Errors
    /// When the pattern is not one the tool understands.
    pub fn set(&mut self, tool: &str, pattern: &str, mode: Mode) -> Result<(), PatternError> {
        let pattern = Pattern::parse(tool, pattern)?;
        self.tools
            .entry(tool.to_owned())
            .or_default()
            .insert(pattern, mode);
        Ok(())
    }
}

/// A tool's value in the file, before its patterns are checked.
struct ToolValue(BTreeMap<String, Mode>);

impl<'de> Deserialize<'de> for ToolValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ToolVisitor;
        impl<'de> Visitor<'de> for ToolVisitor {
            type Value = ToolValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"allow\", \"ask\", \"deny\", or a table of patterns to modes")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<ToolValue, E> {
                let mode = Mode::from_name(name).ok_or_else(|| {
                    E::custom(format!(
                        "unknown permission mode {name:?}: use \"allow\", \"ask\" or \"deny\", or a table of patterns"
                    ))
                })?;
                Ok(ToolValue(BTreeMap::from([("*".to_owned(), mode)])))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolValue, A::Error> {
                let mut table = BTreeMap::new();
                while let Some((pattern, mode)) = map.next_entry()? {
                    table.insert(pattern, mode);
                }
                Ok(ToolValue(table))
            }
        }
        deserializer.deserialize_any(ToolVisitor)
    }
}

impl<'de> Deserialize<'de> for PermissionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConfigVisitor;
        impl<'de> Visitor<'de> for ConfigVisitor {
            type Value = PermissionConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of tools and `outside`")
            }

            #[expect(
                clippy::mutable_key_type,
                reason = "patterns compare by their source text alone"
            )]
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<PermissionConfig, A::Error> {
                let mut config = PermissionConfig::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "outside" {
                        config.outside = Some(map.next_value()?);
                        continue;
                    }
                    let ToolValue(value) = map.next_value()?;
                    let table = config.tools.entry(key.clone()).or_default();
                    for (pattern, mode) in value {
                        let pattern =
                            Pattern::parse(&key, &pattern).map_err(serde::de::Error::custom)?;
                        table.insert(pattern, mode);
                    }
                }
                Ok(config)
            }
        }
        deserializer.deserialize_map(ConfigVisitor)
    }
}
