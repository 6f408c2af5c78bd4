//! Which vendor stands behind an address.

/// The vendors of the built-in table, under the names models.dev gives them, with the hosts that are theirs. A host
/// beginning with a dot stands for all below it.
pub const VENDORS: [(&str, &[&str]); 10] = [
    ("anthropic", &["api.anthropic.com"]),
    (
        "openai",
        &["api.openai.com", "eu.api.openai.com", "us.api.openai.com"],
    ),
    ("google", &["generativelanguage.googleapis.com"]),
    ("amazon-bedrock", &[".amazonaws.com"]),
    ("mistral", &["api.mistral.ai"]),
    ("deepseek", &["api.deepseek.com"]),
    ("xai", &["api.x.ai"]),
    ("groq", &["api.groq.com"]),
    ("togetherai", &["api.together.xyz", "api.together.ai"]),
    ("openrouter", &["openrouter.ai"]),
];

/// The vendor that serves `base_url`, if its host is one's own. A proxy's is nobody's, whatever it forwards to.
pub fn vendor_of(base_url: &str) -> Option<&'static str> {
    let url = url::Url::parse(base_url).ok()?;
    let host = url.host_str()?.to_ascii_lowercase();
    let (vendor, _) = VENDORS.into_iter().find(|(_, hosts)| {
        hosts.iter().any(|known| {
            if known.starts_with('.') {
                host.ends_with(known) && host.starts_with("bedrock-runtime")
            } else {
                host == *known
            }
        })
    })?;
    Some(vendor)
}
