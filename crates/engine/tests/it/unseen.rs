//! What a model is known not to see goes to it in words from the first request on, and the user is told once.

use crate::fakes::Echo;
use crate::support::*;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::event::EventBody;
use tenure_core::id::SessionId;
use tenure_core::request::{Request, RequestMessage, UserPart};
use tenure_engine::*;
use tenure_provider::ModelSettings;
use tenure_provider::catalogue::{Abilities, Ability};

fn png(name: &str) -> tenure_core::request::Media {
    media::attach(name, b"\x89PNG\r\n\x1a\n").unwrap()
}

/// A bed whose model is declared to have these abilities; none leaves them unknown.
fn bed(known: Option<&[Ability]>, plays: impl IntoIterator<Item = Play>) -> Bed {
    let mut bed = Bed::new(plays);
    let settings = ModelSettings {
        abilities: known.map(|known| known.iter().copied().collect::<Abilities>()),
        ..ModelSettings::default()
    };
    bed.catalogue.declare(&Bed::model_ref(), settings);
    bed
}

async fn show(bed: &Bed, engine: &Engine, session: &SessionId, names: &[&str]) -> Outcome {
    let mut media = Vec::new();
    for name in names {
        media.push(match name.strip_suffix(".pdf") {
            Some(_) => media::attach(*name, b"%PDF-1.7").unwrap(),
            None => png(name),
        });
    }
    let prompt = Prompt {
        media,
        ..Prompt::steer("look")
    };
    let admission = engine.client().admit(session, prompt).await.unwrap();
    let ended = outcome(engine, session, &admission).await;
    engine.idle().await;
    bed.assert_at_rest(session).await;
    ended
}

/// The names of the media a request shows.
fn shown(request: &Request) -> Vec<&str> {
    let parts = request.messages.iter().filter_map(|message| match message {
        RequestMessage::User { parts } => Some(parts),
        _ => None,
    });
    parts
        .flatten()
        .filter_map(|part| match part {
            UserPart::Media(media) => Some(media.name.as_str()),
            UserPart::Text(_) => None,
        })
        .collect()
}

/// What the user was told, event by event.
async fn told(bed: &Bed, session: &SessionId) -> Vec<Vec<String>> {
    let log = bed.log(session).await;
    let told = log.into_iter().filter_map(|event| match event.body {
        EventBody::MediaWithheld(told) => {
            assert_eq!(told.model, Bed::model_ref());
            Some(told.names)
        }
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn a_picture_goes_as_words_at_once_where_the_model_is_known_not_to_see() {
    let call = Play::Answer(calls([call("tc_1", "echo", "{}")]));
    let bed = bed(Some(&[Ability::Tools]), [call]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let ended = show(&bed, &engine, &session, &["a.png", "b.pdf"]).await;
    assert_eq!(ended, Outcome::Succeeded);
    assert_eq!(bed.model.sent(), 2, "nothing was refused");
    for index in 0..2 {
        assert!(shown(&bed.model.request(index)).is_empty());
        let asked = bed.asked(index);
        assert!(
            asked.contains("a.png (image/png) was attached here") && asked.contains("b.pdf"),
            "{asked}"
        );
    }
    assert_eq!(
        told(&bed, &session).await,
        [["a.png", "b.pdf"]],
        "once for both steps"
    );
    assert_eq!(ask(&engine, &session, "and?").await.1, Outcome::Succeeded);
    assert_eq!(
        show(&bed, &engine, &session, &["c.png"]).await,
        Outcome::Succeeded
    );
    let all = told(&bed, &session).await;
    assert_eq!(all[1..], [["c.png"]], "only what is new");
}

#[tokio::test]
async fn what_is_not_known_is_shown_and_repaired_as_before() {
    let refused = ProviderError::new(ErrorClass::InvalidRequest, "this model has no vision");
    let bed = bed(None, [Play::Refuse(refused)]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    assert_eq!(
        show(&bed, &engine, &session, &["a.png"]).await,
        Outcome::Succeeded
    );
    assert_eq!(shown(&bed.model.request(0)), ["a.png"]);
    assert!(shown(&bed.model.request(1)).is_empty());
    assert!(told(&bed, &session).await.is_empty(), "the refusal says it");
}

#[tokio::test]
async fn only_the_kind_that_is_not_seen_is_withheld_and_the_other_is_still_repaired() {
    let refused = ProviderError::new(ErrorClass::InvalidRequest, "image dimensions exceed max");
    let plain = ProviderError::new(ErrorClass::InvalidRequest, "no");
    let bed = bed(
        Some(&[Ability::Images]),
        [Play::Refuse(refused), Play::Refuse(plain)],
    );
    let engine = bed.engine().await;
    let session = bed.session().await;
    let ended = show(&bed, &engine, &session, &["a.png", "b.pdf"]).await;
    assert!(matches!(ended, Outcome::Failed(_)), "{ended:?}");
    assert_eq!(shown(&bed.model.request(0)), ["a.png"]);
    assert!(shown(&bed.model.request(1)).is_empty());
    assert_eq!(bed.model.sent(), 2, "what was not shown is not suspected");
    assert_eq!(told(&bed, &session).await, [["b.pdf"]]);
}
