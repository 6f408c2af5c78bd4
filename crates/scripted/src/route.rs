//! Which wire form a path stands for, and which server of Chat Completions it plays.

use crate::http::Request;
use crate::validate::{Broken, ChatDialect};
use crate::vendor::Vendor;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) vendor: Vendor,
    pub(crate) dialect: ChatDialect,
    /// An Azure deployment, which wants its version in the query.
    deployment: bool,
}

impl Route {
    /// The route of a path without its query. `usual` is the dialect of paths that name none.
    pub(crate) fn of_path(path: &str, usual: ChatDialect) -> Option<Self> {
        let Some(rest) = path.strip_prefix("/dialect/") else {
            return Vendor::of_path(path).map(|vendor| Self {
                vendor,
                dialect: usual,
                deployment: false,
            });
        };
        let (word, rest) = rest.split_once('/')?;
        let dialect = ChatDialect::of_word(word)?;
        let deployment = match rest {
            "v1/chat/completions" | "chat/completions" => false,
            _ if dialect == ChatDialect::Azure => {
                let rest = rest.strip_prefix("openai/")?;
                match rest.strip_prefix("deployments/") {
                    Some(named) => {
                        let (name, tail) = named.split_once('/')?;
                        (!name.is_empty() && tail == "chat/completions").then_some(true)?
                    }
                    None => (rest == "v1/chat/completions").then_some(false)?,
                }
            }
            _ => return None,
        };
        Some(Self {
            vendor: Vendor::OpenaiChat,
            dialect,
            deployment,
        })
    }

    /// What is wrong with the address and the headers.
    pub(crate) fn check(&self, request: &Request) -> Vec<Broken> {
        let mut broken = Vec::new();
        let mut add = |rule, at: &str, message: &str| {
            broken.push(Broken {
                rule,
                at: at.to_owned(),
                message: message.to_owned(),
            });
        };
        if self.deployment && !request.query.contains("api-version=") {
            add(
                "scripted.azure_api_version",
                "api-version",
                "Resource not found: the query needs an api-version",
            );
        }
        if self.dialect == ChatDialect::Azure
            && request.header("authorization").is_some()
            && request.header("api-key").is_none()
        {
            add(
                "scripted.azure_api_key",
                "api-key",
                "a key belongs into the header api-key; Authorization is for tokens",
            );
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_dialects_and_to_nothing_else() {
        let of = |path| Route::of_path(path, ChatDialect::Any).map(|r| (r.dialect, r.deployment));
        assert_eq!(of("/v1/chat/completions"), Some((ChatDialect::Any, false)));
        assert_eq!(
            of("/dialect/mistral/v1/chat/completions"),
            Some((ChatDialect::Mistral, false))
        );
        assert_eq!(
            of("/dialect/azure/openai/deployments/d1/chat/completions"),
            Some((ChatDialect::Azure, true))
        );
        assert_eq!(
            of("/dialect/azure/openai/v1/chat/completions"),
            Some((ChatDialect::Azure, false))
        );
        for path in [
            "/dialect/mistral/v1/messages",
            "/dialect/nobody/v1/chat/completions",
            "/dialect/groq/openai/deployments/d1/chat/completions",
            "/dialect/azure/openai/deployments//chat/completions",
            "/dialect/azure",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
