//! Forks by reference.

use super::append::write;
use super::event::Encoded;
use super::head::Head;
use super::project::Work;
use super::rows::Rows;
use super::{AppendStop, Stop, rejected};
use crate::api::Committed;
use crate::error::AppendError;
use tenure_core::event::EventBody;
use tenure_core::id::SessionId;

/// Makes the child. A repeated fork with the same event returns the first one's answer.
pub(crate) fn fork(
    rows: &impl Rows,
    parent: &SessionId,
    through: u64,
    child: &SessionId,
    event: &Encoded,
) -> Result<Committed, AppendStop> {
    match &event.body {
        EventBody::SessionForked(data) if &data.parent == parent && data.through == through => {}
        _ => {
            return Err(rejected(
                child,
                "a fork begins with its own `session.forked`",
            ));
        }
    }
    if let Some(existing) = rows.head(child)? {
        return repeated(rows, &existing, event);
    }
    let Some(from) = rows.head(parent)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(parent.clone())));
    };
    if from.head.is_none_or(|head| through > head) {
        let reason = format!(
            "{parent} ends at {}; it cannot be forked at {through}",
            from.last()
        );
        return Err(rejected(child, reason));
    }
    let Some(holder) = rows.holder(&from, through)? else {
        return Err(rejected(
            child,
            format!("seq {through} of {parent} is missing"),
        ));
    };
    let mut head = rows.new_head(child)?;
    head.head = Some(through);
    head.base = through + 1;
    head.parent = Some(holder);
    // Epochs go on from what is shared: in one log they never fall, and what a parent's owner held fences nothing here.
    head.epoch = from.epoch;
    if through == from.last() {
        // What is in force at the end stands in the parent's own row, however often it was changed.
        head.title = from.title;
        head.directory = from.directory;
        head.requires = from.requires;
        head.provider = from.provider;
        head.model = from.model;
        head.generation = from.generation;
    } else {
        for (name, version, body) in rows.settings(&from, through)? {
            let body = EventBody::decode(&name, version, &body)
                .map_err(|bad| rejected(&head.id, bad.to_string()))?;
            setting(&mut head, body);
        }
    }
    let mut work = Work::new(rows, head, false, false);
    let events = write(&mut work, std::slice::from_ref(event))?;
    let mut head = work.head;
    rows.save(&mut head)?;
    Ok(Committed {
        events,
        head: head.last(),
        write_no: head.write_no,
        duplicate: false,
    })
}

fn repeated(rows: &impl Rows, existing: &Head, event: &Encoded) -> Result<Committed, AppendStop> {
    let stored = rows
        .event(existing.sid, &event.id)?
        .filter(|row| row.sid == existing.sid && row.body == event.text)
        .and_then(|row| row.decode(&existing.id).ok());
    match stored {
        Some(event) => Ok(Committed {
            events: vec![event],
            head: existing.last(),
            write_no: existing.write_no,
            duplicate: true,
        }),
        None => Err(Stop::Refused(AppendError::SessionExists(
            existing.id.clone(),
        ))),
    }
}

fn setting(head: &mut Head, body: EventBody) {
    match body {
        EventBody::SessionCreated(data) => {
            head.title = data.title;
            head.set_location(&data.location);
            head.provider = data.model.provider;
            head.model = data.model.model;
        }
        EventBody::SessionRenamed(data) => head.title = Some(data.title),
        EventBody::ModelSelected(data) => {
            head.provider = data.model.provider;
            head.model = data.model.model;
        }
        EventBody::AttachmentReplaced(data) => {
            head.generation = data.generation;
            head.set_location(&data.location);
        }
        _ => {}
    }
}
