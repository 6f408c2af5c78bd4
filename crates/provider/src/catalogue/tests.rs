//! Tests of the catalogue: which layer wins, what a vendor is, and that tables read back what was written.

use super::models_dev::{self, FormatError};
use super::table::{Entries, Entry, Head, Table, write};
use super::*;
use proptest::prelude::*;
use tenure_core::model::Blind;
use tenure_core::price::{Rate, Rates, Tier};

fn rate(text: &str) -> Rate {
    Rate::per_million(text).unwrap()
}

fn flat(input: &str, output: &str) -> Price {
    Price::flat(Rates {
        input: rate(input),
        output: rate(output),
        ..Rates::default()
    })
}

fn head() -> Head {
    Head {
        source: "https://models.dev/api.json".to_owned(),
        date: "2026-01-02".to_owned(),
    }
}

fn model(text: &str) -> ModelRef {
    ModelRef::parse(text).unwrap()
}

/// A file in the format, made by hand: the old and the new form of tiers, a price of an unknown form, a model without.
const API_JSON: &str = r#"{
  "acme": {
    "id": "acme", "env": ["ACME_KEY"], "npm": "@ai-sdk/openai-compatible", "name": "Acme",
    "models": {
      "acme/large": {
        "id": "acme/large", "name": "Large", "attachment": true, "reasoning": true, "tool_call": true,
        "structured_output": true, "temperature": true, "release_date": "2026-01", "last_updated": "2026-01",
        "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}, "open_weights": false,
        "cost": {"input": 1.25, "output": 10, "cache_read": 0.125, "cache_write": 1.5625,
          "tiers": [{"input": 2.5, "output": 15, "cache_read": 0.25, "tier": {"type": "context", "size": 272000}}],
          "context_over_200k": {"input": 2.5, "output": 15}},
        "limit": {"context": 400000, "input": 272000, "output": 128000}, "a_new_field": [1]
      },
      "old": {
        "cost": {"input": 3, "output": 15, "reasoning": 20, "context_over_200k": {"input": 6, "output": 22.5}},
        "limit": {"context": 1e6, "output": 0}, "reasoning": false, "tool_call": {"supported": true}
      },
      "strange": {
        "cost": {"input": 1, "output": 2, "tiers": [{"input": 1, "output": 1, "tier": {"type": "moon", "size": 1}}]},
        "limit": {"context": 1000, "output": 10}
      },
      "bare": {"limit": {"context": 1000, "output": 10}}
    }
  }
}"#;

fn refreshed() -> String {
    let read = models_dev::read(API_JSON.as_bytes()).unwrap();
    write(&head(), &["a note"], &read.entries)
}

#[test]
fn the_models_dev_format_is_read_whole() {
    let read = models_dev::read(API_JSON.as_bytes()).unwrap();
    assert_eq!(read.unpriced, ["acme/strange"]);
    let acme = &read.entries["acme"];
    let large = &acme["acme/large"];
    assert_eq!(
        (large.context, large.output),
        (Some(400_000), Some(128_000))
    );
    assert_eq!(
        large.abilities.to_string(),
        "tools,reasoning,structured_output,images,pdf"
    );
    let price = large.price.as_ref().unwrap();
    assert_eq!(price.base.cache_read, Some(rate("0.125")));
    assert_eq!((price.tiers.len(), price.tiers[0].above), (1, 272_000));
    let old = &acme["old"];
    assert_eq!(
        (old.context, old.output),
        (Some(1_000_000), None),
        "0 is unknown"
    );
    let price = old.price.as_ref().unwrap();
    assert_eq!(price.base.reasoning, Some(rate("20")));
    assert_eq!(price.tiers[0].above, 200_000);
    assert_eq!(price.tiers[0].rates.output, rate("22.5"));
    assert!(old.abilities.has(Ability::Tools));
    assert_eq!(acme["strange"].price, None);
    assert_eq!(acme["bare"].price, None);
}

#[test]
fn another_format_is_refused() {
    for bad in [
        "",
        "[]",
        "{\"a\": 1}",
        "<html>",
        "{\"a\": {\"models\": {\"m\": 3}}}",
    ] {
        assert!(
            matches!(models_dev::read(bad.as_bytes()), Err(FormatError::Shape(_))),
            "{bad}"
        );
    }
    for empty in [
        "{}",
        "{\"a\": {\"models\": {}}}",
        "{\"a\": {\"models\": {\"m\": {}}}}",
    ] {
        let error = models_dev::read(empty.as_bytes()).unwrap_err();
        assert!(matches!(error, FormatError::Empty), "{empty}");
    }
}

#[test]
fn a_table_says_what_was_written_into_it() {
    let text = refreshed();
    let table = Table::new(&text);
    assert_eq!(table.head().unwrap(), head());
    assert_eq!(table.vendors().collect::<Vec<_>>(), ["acme"]);
    assert_eq!(
        table.names("acme").collect::<Vec<_>>(),
        ["acme/large", "bare", "old", "strange"]
    );
    let read = models_dev::read(API_JSON.as_bytes()).unwrap();
    for (name, entry) in &read.entries["acme"] {
        assert_eq!(table.find("acme", name).as_ref(), Some(entry), "{name}");
    }
    assert_eq!(table.find("acme", "acme"), None, "no prefix is a name");
    assert_eq!(table.find("acm", "old"), None);
    assert!(Table::new("x").head().is_err());
}

#[test]
fn the_built_in_table_is_whole_small_and_says_where_it_is_from() {
    let table = built_in();
    let head = table.head().unwrap();
    assert!(head.source.starts_with("PyPI package litellm "), "{head:?}");
    assert!(BUILT_IN.len() < 100_000, "{}", BUILT_IN.len());
    let mut count = 0;
    for (vendor, _) in VENDORS {
        for name in table.names(vendor) {
            let entry = table.find(vendor, name).expect(name);
            assert!(entry.context.is_some(), "{name}");
            let price = entry.price.expect(name);
            assert!(price.tiers.is_sorted_by_key(|tier| tier.above), "{name}");
            count += 1;
        }
    }
    assert!(count > 300, "{count}");
    assert_eq!(count, BUILT_IN.lines().filter(|l| l.contains('\t')).count());
    // One figure that is easy to check by hand.
    let sonnet = table.find("anthropic", "claude-sonnet-4-5").unwrap();
    assert_eq!(
        (sonnet.context, sonnet.output),
        (Some(200_000), Some(64_000))
    );
    let base = sonnet.price.unwrap().base;
    assert_eq!((base.input, base.output), (rate("3"), rate("15")));
    assert_eq!(
        (base.cache_read, base.cache_write, base.cache_write_long),
        (Some(rate("0.3")), Some(rate("3.75")), Some(rate("6")))
    );
    // A cent for each search, told for a million of them.
    let fee = |vendor, model| table.find(vendor, model).unwrap().price.unwrap().search;
    assert_eq!(fee("anthropic", "claude-sonnet-4-5"), Some(rate("10000")));
    assert_eq!(
        fee("openai", "gpt-5"),
        None,
        "its searches are not counted in the usage"
    );
}

#[test]
fn the_first_layer_that_has_a_value_wins_value_by_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models.tsv");
    let entry = Entry {
        context: Some(111_000),
        output: None,
        abilities: Abilities::default().with(Ability::Tools),
        price: Some(flat("7", "8")),
    };
    let entries = Entries::from([(
        "anthropic".to_owned(),
        BTreeMap::from([("claude-sonnet-4-5".to_owned(), entry)]),
    )]);
    std::fs::write(&path, write(&head(), &[], &entries)).unwrap();
    let mut catalogue = Catalogue::new().with_refreshed(path);
    catalogue.is_vendor("mine", "anthropic");
    let info = catalogue.lookup(&model("mine/claude-sonnet-4-5"));
    assert_eq!(info.limits.context, Some(111_000));
    assert_eq!(info.limits.output, Some(64_000));
    assert_eq!(info.price, Some(flat("7", "8")));
    assert_eq!(
        info.origins,
        Origins {
            context: Origin::Refreshed,
            output: Origin::BuiltIn,
            price: Origin::Refreshed,
            abilities: Origin::Refreshed,
        }
    );
    let declared = ModelSettings {
        context: Some(5),
        price: Some(flat("0", "0")),
        ..ModelSettings::default()
    };
    catalogue.declare(&model("mine/claude-sonnet-4-5"), declared);
    let info = catalogue.lookup(&model("mine/claude-sonnet-4-5"));
    assert_eq!(info.limits.context, Some(5));
    assert_eq!(info.price, Some(flat("0", "0")), "declared free is free");
    assert_eq!(info.origins.price, Origin::Declared);
    assert_eq!(info.origins.output, Origin::BuiltIn);
    // The same name at a provider that is nobody's says nothing.
    let proxy = catalogue.lookup(&model("proxy/claude-sonnet-4-5"));
    assert_eq!((proxy.limits.context, proxy.price), (None, None));
    assert_eq!(proxy.origins.price, Origin::Unknown);
    assert!(catalogue.knows(&model("mine/claude-opus-4-5")));
    assert!(!catalogue.knows(&model("proxy/claude-opus-4-5")));
}

#[test]
fn what_a_model_is_known_not_to_do_is_told_from_what_nobody_knows() {
    let blind = |images, documents| Blind { images, documents };
    let of = |abilities| {
        let entry = Entry {
            abilities,
            ..Entry::default()
        };
        ModelInfo::merge(None, None, Some(&entry)).blind()
    };
    let none = Abilities::default();
    assert_eq!(of(none.with(Ability::Tools)), blind(false, false));
    assert_eq!(of(none.without(Ability::Images)), blind(true, false));
    assert_eq!(
        of(none.without(Ability::Pdf).with(Ability::Pdf)),
        blind(false, false)
    );
    // Who declares what a model can do has left out what it cannot.
    let declared = |known: Abilities| {
        let settings = ModelSettings {
            abilities: Some(known),
            ..ModelSettings::default()
        };
        ModelInfo::of(Some(&settings)).blind()
    };
    assert_eq!(declared(none.with(Ability::Images)), blind(false, true));
    assert_eq!(declared(none), blind(true, true));
    assert_eq!(ModelInfo::of(None).blind(), blind(false, false));
}

#[test]
fn models_dev_says_what_a_model_takes_and_so_what_it_does_not() {
    for (input, expected) in [
        ("[\"text\"]", "!images,!pdf"),
        ("[\"text\", \"image\"]", "images"),
        ("[\"text\", \"pdf\"]", "pdf,!images"),
        ("[]", ""),
    ] {
        let json = format!(
            "{{\"a\": {{\"models\": {{\"m\": {{\"limit\": {{\"context\": 9}}, \"modalities\": {{\"input\": {input}}}}}}}}}}}"
        );
        let read = models_dev::read(json.as_bytes()).unwrap();
        let known = read.entries["a"]["m"].abilities;
        assert_eq!(known.words(), expected, "{input}");
        let text = write(&head(), &[], &read.entries);
        assert_eq!(Table::new(&text).find("a", "m").unwrap().abilities, known);
    }
}

#[test]
fn a_refreshed_price_keeps_the_built_in_one_of_writes_for_an_hour() {
    for (input, long) in [("3", Some(rate("6"))), ("4", None)] {
        let price = Price::flat(Rates {
            input: rate(input),
            output: rate("15"),
            cache_write: Some(rate("3.75")),
            ..Rates::default()
        });
        let refreshed = Entry {
            price: Some(price),
            ..Entry::default()
        };
        let built_in = built_in().find("anthropic", "claude-sonnet-4-5");
        let info = ModelInfo::merge(None, Some(&refreshed), built_in.as_ref());
        let base = info.price.unwrap().base;
        assert_eq!((base.input, base.cache_write_long), (rate(input), long));
        assert_eq!(info.origins.price, Origin::Refreshed);
    }
}

#[test]
fn a_damaged_refreshed_table_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models.tsv");
    std::fs::write(&path, "rubbish").unwrap();
    let mut catalogue = Catalogue::new().with_refreshed(path);
    catalogue.is_vendor("mine", "anthropic");
    let info = catalogue.lookup(&model("mine/claude-sonnet-4-5"));
    assert_eq!(info.origins.price, Origin::BuiltIn);
    assert!(
        catalogue
            .problem()
            .unwrap()
            .contains("tenure models --refresh")
    );
    let none = Catalogue::new().with_refreshed(folder.path().join("none.tsv"));
    assert_eq!(
        (none.problem(), none.refreshed_table().is_none()),
        (None, true)
    );
}

#[test]
fn only_a_vendors_own_host_is_the_vendor() {
    for (url, vendor) in [
        ("https://api.anthropic.com/v1", Some("anthropic")),
        ("https://API.openai.com/v1", Some("openai")),
        (
            "https://generativelanguage.googleapis.com/v1beta",
            Some("google"),
        ),
        (
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
            Some("amazon-bedrock"),
        ),
        ("https://s3.amazonaws.com", None),
        ("https://api.anthropic.com.proxy.example/v1", None),
        ("https://proxy.example/api.anthropic.com", None),
        ("http://127.0.0.1:8080/v1", None),
        ("nonsense", None),
    ] {
        assert_eq!(vendor_of(url), vendor, "{url}");
    }
}

#[test]
fn an_output_limit_nobody_declared_is_asked_for_only_where_it_must_be() {
    let mut catalogue = Catalogue::new();
    catalogue.is_vendor("a", "anthropic");
    catalogue.is_vendor("o", "openai");
    let claude = catalogue.lookup(&model("a/claude-sonnet-4-5"));
    assert_eq!(claude.output_to_ask("anthropic-messages"), Some(64_000));
    let gpt = catalogue.lookup(&model("o/gpt-5"));
    assert_eq!(gpt.output_to_ask("openai-responses"), None);
    assert_eq!(gpt.most_output(), Some(128_000));
}

prop_compose! {
    fn some_rate()(pico in 0u64..1_000_000_000) -> Rate { Rate::from_pico(pico) }
}

prop_compose! {
    fn some_rates()(
        input in some_rate(), output in some_rate(),
        others in proptest::collection::vec(proptest::option::of(some_rate()), 4),
    ) -> Rates {
        Rates {
            input, output, reasoning: others[0], cache_read: others[1], cache_write: others[2],
            cache_write_long: others[3],
        }
    }
}

prop_compose! {
    fn some_entry()(
        context in proptest::option::of(any::<u64>()), output in proptest::option::of(any::<u64>()),
        bits in proptest::collection::vec(proptest::sample::select(Ability::ALL.to_vec()), 0..6),
        base in proptest::option::of(some_rates()),
        tiers in proptest::collection::vec((any::<u64>(), some_rates()), 0..3),
        search in proptest::option::of(some_rate()),
    ) -> Entry {
        let tiers = tiers.into_iter().map(|(above, rates)| Tier { above, rates }).collect();
        Entry {
            context, output, abilities: bits.into_iter().collect(),
            price: base.map(|base| Price { base, tiers, search }),
        }
    }
}

proptest! {
    #[test]
    fn every_table_reads_back(
        entries in proptest::collection::btree_map(
            "[a-z-]{1,6}",
            proptest::collection::btree_map("[a-zA-Z0-9/:. -]{1,12}", some_entry(), 1..6),
            0..4,
        ),
    ) {
        let text = write(&head(), &[], &entries);
        let table = Table::new(&text);
        for (vendor, models) in &entries {
            let names: Vec<&str> = models.keys().map(String::as_str).collect();
            prop_assert_eq!(table.names(vendor).collect::<Vec<_>>(), names);
            for (name, entry) in models {
                let found = table.find(vendor, name);
                prop_assert_eq!(found.as_ref(), Some(entry));
            }
        }
    }

    #[test]
    fn any_text_is_searched_without_harm(text in "[@#\\t\\n a-z0-9/=.-]{0,200}|.{0,60}", name in "[a-z@]{0,4}") {
        let table = Table::new(&text);
        let _ = (table.head(), table.find("a", &name), table.find(&name, "a"), table.vendors().count());
        let _ = models_dev::read(text.as_bytes());
    }
}
