//! Tests of the session fold.

use super::*;
use crate::id::{CallId, EventId, SessionId};
use crate::message::PartKind;
use crate::provider::Finish;

/// Numbers events like a log would.
struct Log(Vec<Event>);

impl Log {
    fn add(&mut self, body: impl Into<EventBody>) -> &mut Self {
        let seq = self.0.len() as u64;
        self.0.push(Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: Some(1),
            created_ms: seq as i64,
            body: body.into(),
        });
        self
    }
}

fn created() -> SessionCreated {
    SessionCreated {
        title: None,
        location: Location::at("/p".to_owned()),
        model: ModelRef {
            provider: "p".to_owned(),
            model: "m".to_owned(),
        },
        limits: Limits::default(),
        permissions: serde_json::Value::Null,
    }
}

fn msg(name: &str) -> MessageId {
    MessageId::parse(&format!("msg_{name}")).unwrap()
}

fn admit(log: &mut Log, name: &str, promote: bool) {
    log.add(InputAdmitted {
        input: msg(name),
        kind: InputKind::user(name.to_owned()),
        delivery: Delivery::Steer,
    });
    if promote {
        log.add(InputPromoted { input: msg(name) });
    }
}

fn step(log: &mut Log, name: &str, call: Option<&str>) {
    let model = created().model;
    log.add(StepStarted {
        message: msg(name),
        step: 1,
        model: model.clone(),
        last: false,
    });
    log.add(AttemptStarted {
        message: msg(name),
        attempt: 1,
        model,
        request_hash: String::new(),
        at_most: None,
    });
    if let Some(call) = call {
        log.add(ToolCalled {
            message: msg(name),
            part: 0,
            attempt: 1,
            call: CallId::new(call),
            name: "t".to_owned(),
            input: "{}".to_owned(),
            executed: false,
            native: None,
        });
    }
}

#[test]
fn applying_twice_changes_nothing() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "a", true);
    step(&mut log, "r", Some("c1"));
    let once = SessionState::fold(&log.0);
    let twice = SessionState::fold(log.0.iter().flat_map(|e| [e, e]));
    assert_eq!(once.entries, twice.entries);
    assert_eq!(once.totals, twice.totals);
    assert_eq!(once.turn.pending(), twice.turn.pending());
}

#[test]
fn a_pending_input_is_visible_and_not_in_the_conversation() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "a", false);
    let state = SessionState::fold(&log.0);
    assert_eq!(state.inbox.len(), 1);
    assert!(state.entries.is_empty());
    assert!(!state.wants_step);
}

#[test]
fn a_fork_inside_a_step_begins_at_rest_with_every_call_settled() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "a", true);
    admit(&mut log, "waiting", false);
    step(&mut log, "r", Some("c1"));
    log.add(SessionForked {
        parent: SessionId::from_bits(1),
        through: 5,
    });
    let state = SessionState::fold(&log.0);
    assert!(state.inbox.is_empty());
    assert!(state.turn.at_boundary());
    let Entry::Assistant(message) = state.entries.last().unwrap().as_ref() else {
        panic!("the open message is last")
    };
    assert_eq!(message.end.as_ref().unwrap().finish, Finish::Error);
    let PartKind::Tool(tool) = &message.parts[0].kind else {
        panic!("a tool")
    };
    assert!(tool.outcome.is_some());
}

#[test]
fn a_compaction_keeps_the_tail_and_pins_the_last_user_input() {
    let mut log = Log(Vec::new());
    log.add(created());
    admit(&mut log, "task", true);
    step(&mut log, "r1", None);
    log.add(StepEnded {
        message: msg("r1"),
        finish: Finish::Stop,
        usage: Usage::default(),
        cost: None,
    });
    let kept_from = log.0.len() as u64;
    step(&mut log, "r2", None);
    log.add(StepEnded {
        message: msg("r2"),
        finish: Finish::Stop,
        usage: Usage::default(),
        cost: None,
    });
    log.add(CompactionEnded {
        compaction: crate::id::CompactionId::from_bits(1),
        summary: "so far".to_owned(),
        kept_from,
        usage: None,
        cost: None,
    });
    let state = SessionState::fold(&log.0);
    assert_eq!(state.entries.len(), 1);
    let summary = state.summary.unwrap();
    assert!(matches!(summary.pinned, Some(InputKind::User { text, .. }) if text == "task"));
}

mod withheld {
    //! One block that a provider refuses does not make every later request fail.

    use super::*;
    use crate::error::SessionError;
    use crate::event::body::{InputKind, MediaWithheld, StepFailed, StepStarted};
    use crate::model::Blind;
    use crate::request::Media;

    fn with_picture(text: &str) -> InputKind {
        InputKind::User {
            text: text.into(),
            files: Vec::new(),
            media: vec![Media {
                name: "a.png".into(),
                media_type: "image/png".into(),
                data: "AAAA".into(),
            }],
            schema: None,
            effort: None,
        }
    }

    struct Log {
        state: SessionState,
        seq: u64,
    }

    impl Log {
        fn add(&mut self, body: impl Into<EventBody>) {
            self.state.apply(&Event {
                id: crate::EventId::from_bits(u128::from(self.seq) + 1),
                session: crate::SessionId::from_bits(1),
                seq: self.seq,
                epoch: Some(1),
                created_ms: 0,
                body: body.into(),
            });
            self.seq += 1;
        }

        fn say(&mut self, kind: InputKind) {
            let input = MessageId::from_bits(u128::from(self.seq) + 100);
            self.add(InputAdmitted {
                input: input.clone(),
                kind,
                delivery: Delivery::Steer,
            });
            self.add(InputPromoted { input });
        }

        fn fail(&mut self, kind: &str, message: &str) -> bool {
            let error = SessionError::new(kind, message);
            let wanted = self.state.can_repair(&error);
            let id = MessageId::from_bits(u128::from(self.seq) + 100);
            self.add(StepStarted {
                message: id.clone(),
                step: 1,
                model: ModelRef {
                    provider: "p".into(),
                    model: "m".into(),
                },
                last: false,
            });
            self.add(StepFailed {
                message: id,
                error,
                usage: Default::default(),
                cost: None,
            });
            assert_eq!(
                self.state.wants_step, wanted,
                "the fold and the runner agree"
            );
            wanted
        }
    }

    fn log() -> Log {
        Log {
            state: SessionState::default(),
            seq: 0,
        }
    }

    #[test]
    fn a_refused_picture_is_left_out_once() {
        let mut log = log();
        log.say(with_picture("look"));
        assert!(log.fail("invalid_request", "no idea"));
        assert!(!log.fail("invalid_request", "no idea"), "one try");
        log.say(with_picture("another"));
        assert!(log.fail("request_too_large", ""));
        assert!(!log.fail("rate_limit", "image"), "waiting helps that");
    }

    #[test]
    fn an_old_picture_is_suspected_only_when_it_is_named() {
        let mut log = log();
        log.say(with_picture("look"));
        let id = MessageId::from_bits(7);
        log.add(StepStarted {
            message: id.clone(),
            step: 1,
            model: ModelRef {
                provider: "p".into(),
                model: "m".into(),
            },
            last: false,
        });
        log.add(crate::event::body::StepEnded {
            message: id,
            finish: crate::provider::Finish::Stop,
            usage: Default::default(),
            cost: None,
        });
        log.say(InputKind::user("go on"));
        assert!(!log.fail("invalid_request", "unknown model"));
        assert!(log.fail(
            "invalid_request",
            "messages.0.content.1: image dimensions exceed max"
        ));
    }

    #[test]
    fn of_a_body_that_is_too_large_old_pictures_go_without_a_word_of_them() {
        let mut log = log();
        log.say(with_picture("look"));
        signed_call(&mut log);
        log.say(InputKind::user("go on"));
        assert!(log.fail("request_too_large", ""));
        assert!(log.state.withheld.media.is_some());
    }

    #[test]
    fn the_user_is_told_once_for_each_model_what_it_does_not_see() {
        let mut log = log();
        let model = |name: &str| ModelRef::parse(&format!("p/{name}")).unwrap();
        let blind = Blind {
            images: true,
            documents: false,
        };
        let settled = |log: &mut Log, name: &str| {
            let names = log.state.unseen_media(&model(name), blind);
            log.add(MediaWithheld {
                model: model(name),
                blind,
                names: names.clone(),
            });
            names.len()
        };
        log.say(with_picture("look"));
        assert_eq!(
            log.state.unseen_media(&model("a"), Blind::default()),
            [""; 0]
        );
        assert_eq!(log.state.unseen_media(&model("a"), blind), ["a.png"]);
        assert_eq!((settled(&mut log, "a"), settled(&mut log, "a")), (1, 0));
        log.say(with_picture("another"));
        assert_eq!((settled(&mut log, "a"), settled(&mut log, "a")), (1, 0));
        assert_eq!((settled(&mut log, "b"), settled(&mut log, "a")), (2, 2));
        assert!(
            log.fail("invalid_request", "no image, please"),
            "no settings say whose log it is"
        );
        assert_eq!(settled(&mut log, "c"), 0, "what was refused is known");
    }

    fn summarised(log: &mut Log) {
        log.add(CompactionEnded {
            compaction: crate::id::CompactionId::from_bits(1),
            summary: "so far".to_owned(),
            kept_from: log.seq,
            usage: None,
            cost: None,
        });
    }

    #[test]
    fn bc_s_066_a_refused_picture_stays_out_when_a_compaction_pins_its_words() {
        let mut log = log();
        log.say(with_picture("look"));
        assert!(log.fail("invalid_request", "Could not process image"));
        // Twice: the second compaction takes the words over from the first one's summary.
        for _ in 0..2 {
            summarised(&mut log);
            let summary = log.state.summary.as_ref().unwrap();
            let (_, seq) = summary.pinned().expect("the words are pinned");
            assert!(seq < summary.seq && log.state.withheld.hides_media(seq));
            assert!(
                !log.fail("invalid_request", "Could not process image"),
                "nothing is shown"
            );
        }
    }

    #[test]
    fn a_word_that_merely_occurs_throws_no_state_away() {
        let mut log = log();
        log.say(InputKind::user("hi"));
        signed_call(&mut log);
        let native = "adaptive thinking is not supported on this model";
        assert!(!log.fail("invalid_request", native));
        assert!(!log.fail(
            "invalid_request",
            "max_tokens must exceed thinking.budget_tokens"
        ));
        assert!(!log.fail(
            "auth",
            "The request signature does not match, reasoning: expired"
        ));
        assert!(!log.fail("invalid_request", "The request's signature is not valid"));
        assert!(
            !log.fail("server", "A reasoning summary could not be made"),
            "that may pass"
        );
        assert!(log.state.withheld.reasoning.is_none() && !log.state.withheld.thoughts);
    }

    #[test]
    fn refused_state_is_known_by_what_each_vendor_says_of_it() {
        for (kind, said) in [
            ("not_found", "Item with id 'rs_1' not found."),
            (
                "invalid_request",
                "property 'reasoning_content' is unsupported",
            ),
            (
                "invalid_request",
                "extra_content: Extra inputs are not permitted",
            ),
        ] {
            let mut log = log();
            log.say(InputKind::user("hi"));
            signed_call(&mut log);
            assert!(log.fail(kind, said), "{said}");
        }
    }

    /// An open step, and the vendor's own JSON of something in it.
    fn opened(log: &mut Log) -> (MessageId, crate::provider::NativeState) {
        let message = MessageId::from_bits(u128::from(log.seq) + 500);
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
        };
        log.add(StepStarted {
            message: message.clone(),
            step: 1,
            model,
            last: false,
        });
        let native = crate::provider::NativeState {
            protocol: "gemini".into(),
            provider: "p".into(),
            model: "m".into(),
            native: "{\"thoughtSignature\":\"S\"}".into(),
        };
        (message, native)
    }

    #[test]
    fn state_may_stand_on_a_result_alone_or_be_a_block_of_its_own() {
        let refused = "Corrupted thought signature.";
        let mut log = log();
        log.say(InputKind::user("hi"));
        let (message, native) = opened(&mut log);
        log.add(crate::event::body::BlockRecorded {
            message,
            part: 0,
            attempt: 1,
            native,
        });
        assert!(log.fail("invalid_request", refused));
        let (message, native) = opened(&mut log);
        let call = crate::CallId::new("srv_1");
        log.add(crate::event::body::ToolCalled {
            message: message.clone(),
            part: 0,
            attempt: 1,
            call: call.clone(),
            name: "search".into(),
            input: "{}".into(),
            executed: true,
            native: None,
        });
        assert!(
            !log.state
                .can_repair(&SessionError::new("invalid_request", refused))
        );
        log.add(crate::event::body::ToolSucceeded {
            message,
            call,
            text: "found".into(),
            title: String::new(),
            metadata: serde_json::Value::Null,
            cut: None,
            native: Some(native),
        });
        assert!(log.fail("invalid_request", refused));
    }

    #[test]
    fn state_of_an_attempt_that_was_given_up_is_nothing_to_leave_out() {
        use crate::event::body::{FragmentEnded, FragmentKind, FragmentStarted, RetryScheduled};
        let mut log = log();
        log.say(InputKind::user("hi"));
        let (message, native) = opened(&mut log);
        log.add(FragmentStarted {
            message: message.clone(),
            part: 0,
            attempt: 1,
            kind: FragmentKind::Reasoning,
        });
        log.add(FragmentEnded {
            message: message.clone(),
            part: 0,
            bytes: 0,
            hash: String::new(),
            native: Some(native),
            partial: false,
            superseded: true,
        });
        log.add(RetryScheduled {
            message,
            attempt: 2,
            at_ms: 0,
            delay_ms: 0,
            error: crate::ProviderError::new(crate::ErrorClass::Server, "again"),
        });
        assert!(!log.fail("invalid_request", "Corrupted thought signature."));
    }

    #[test]
    fn bc_s_061_a_signature_on_a_call_is_left_out_once() {
        let mut log = log();
        log.say(InputKind::user("hi"));
        assert!(!log.fail("invalid_request", "Corrupted thought signature."));
        signed_call(&mut log);
        assert!(log.fail("invalid_request", "Corrupted thought signature."));
        assert!(!log.fail("invalid_request", "Corrupted thought signature."));
    }

    #[test]
    fn summaries_of_thoughts_that_are_refused_are_not_asked_for_again() {
        let mut log = log();
        log.say(InputKind::user("hi"));
        signed_call(&mut log);
        let unverified = "Your organization must be verified to generate reasoning summaries.";
        assert!(log.fail("invalid_request", unverified));
        assert!(log.state.withheld.thoughts && log.state.withheld.reasoning.is_none());
        assert!(!log.fail("invalid_request", unverified), "one try");
    }

    #[test]
    fn bc_s_061_a_refusal_may_be_named_by_its_code_alone() {
        let mut log = log();
        log.say(InputKind::user("hi"));
        signed_call(&mut log);
        let error = crate::error::ProviderError {
            code: Some("invalid_encrypted_content".to_owned()),
            ..crate::error::ProviderError::new(crate::ErrorClass::InvalidRequest, "no")
        };
        assert!(log.state.can_repair(&SessionError::from(&error)));
    }

    #[test]
    fn a_picture_refused_as_another_class_is_known_by_its_words() {
        let mut log = log();
        log.say(with_picture("look"));
        assert!(!log.fail("server", "Internal error"), "that may pass");
        assert!(!log.fail("not_found", "model: no-such-model"));
        assert!(log.fail("not_found", "No endpoints found that support image input"));
        log.say(with_picture("look again"));
        assert!(log.fail(
            "server",
            "image input is not supported - hint: provide the mmproj"
        ));
    }

    #[test]
    fn a_tool_whose_name_holds_the_word_is_no_picture() {
        let mut log = log();
        log.say(with_picture("look"));
        signed_call(&mut log);
        assert!(!log.fail(
            "invalid_request",
            "Invalid schema for function 'write_file'"
        ));
    }

    /// A step that ended with a call whose JSON the provider signed.
    fn signed_call(log: &mut Log) {
        let message = MessageId::from_bits(u128::from(log.seq) + 500);
        log.add(StepStarted {
            message: message.clone(),
            step: 1,
            model: ModelRef {
                provider: "p".into(),
                model: "m".into(),
            },
            last: false,
        });
        log.add(crate::event::body::ToolCalled {
            message: message.clone(),
            part: 0,
            attempt: 1,
            call: crate::CallId::new("call_1"),
            name: "read".into(),
            input: "{}".into(),
            executed: false,
            native: Some(crate::provider::NativeState {
                protocol: "gemini".into(),
                provider: "p".into(),
                model: "m".into(),
                native: "{\"thoughtSignature\":\"S\"}".into(),
            }),
        });
        log.add(crate::event::body::StepEnded {
            message,
            finish: crate::provider::Finish::ToolCalls,
            usage: Default::default(),
            cost: None,
        });
    }

    #[test]
    fn a_refused_signature_may_stand_on_a_call() {
        let mut log = log();
        log.say(InputKind::user("look"));
        signed_call(&mut log);
        assert!(log.fail("invalid_request", "Thought signature is not valid"));
        assert!(!log.fail("invalid_request", "Thought signature is not valid"));
    }

    #[test]
    fn nothing_is_left_out_where_there_is_nothing() {
        let mut log = log();
        log.say(InputKind::user("hi"));
        assert!(!log.fail("invalid_request", "Invalid signature in thinking block"));
        assert!(!log.fail("invalid_request", "image"));
    }
}
