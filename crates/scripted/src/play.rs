//! Plays one turn as a stream: parts in order, piece by piece, with what goes wrong in between.

use std::time::Duration;

use crate::encode::{Encoder, Plan, Planned, StreamError, encoder};
use crate::http::Conn;
use crate::issue::Issuer;
use crate::record::Flight;
use crate::script::{Fault, Turn};
use crate::stream::{Stop, Stream, Trigger};

/// Plays a turn to its end.
///
/// # Errors
/// Why the stream stopped before its end; the connection is then no longer usable, save after a proper end.
pub(crate) async fn play(
    conn: &mut Conn,
    flight: &Flight,
    turn: &Turn,
    plan: &Plan,
    issuer: &Issuer,
) -> Result<(), Stop> {
    let mut encoder = encoder(plan, issuer);
    let mut stream = Stream::new(
        conn,
        plan.vendor,
        &turn.wire,
        Trigger::of(turn.fault.as_ref()),
    );
    let result = say(&mut stream, encoder.as_mut(), flight, turn, plan).await;
    match result {
        Err(Stop::Error) => {
            flight.closing();
            if let Some(Fault::ErrorEvent {
                error_type,
                message,
                failed,
                ..
            }) = &turn.fault
            {
                let error = StreamError {
                    error_type: error_type.as_deref(),
                    message: message.as_deref(),
                    failed: *failed,
                };
                stream.frames.bytes.clear();
                stream.frames.ends.clear();
                encoder.error(plan, &error, &mut stream.frames);
            }
            stream.flush().await?;
            stream.end_body().await
        }
        other => other,
    }
}

async fn say(
    stream: &mut Stream<'_>,
    encoder: &mut dyn Encoder,
    flight: &Flight,
    turn: &Turn,
    plan: &Plan,
) -> Result<(), Stop> {
    if turn.delay_ms > 0 {
        stream.pause(Duration::from_millis(turn.delay_ms)).await?;
    }
    encoder.start(plan, &mut stream.frames);
    stream.pump().await?;
    for part in &plan.parts {
        say_part(stream, encoder, turn, part).await?;
    }
    stream.content_end().await?;
    encoder.finish(plan, &mut stream.frames);
    if !matches!(turn.fault, Some(Fault::NoTerminator {})) {
        encoder.terminator(plan, &mut stream.frames);
    }
    flight.closing();
    stream.end().await
}

async fn say_part(
    stream: &mut Stream<'_>,
    encoder: &mut dyn Encoder,
    turn: &Turn,
    part: &Planned,
) -> Result<(), Stop> {
    encoder.open(part, &mut stream.frames);
    stream.pump().await?;
    if let Some(pieces) = part.pieces() {
        for piece in pieces.iter() {
            if turn.chunk_delay_ms > 0 {
                stream.flush().await?;
                stream
                    .pause(Duration::from_millis(turn.chunk_delay_ms))
                    .await?;
            }
            encoder.delta(piece, &mut stream.frames);
            if stream.is_due() {
                stream.pump().await?;
            }
        }
    }
    encoder.close(part, &mut stream.frames);
    stream.pump().await?;
    stream.part_done();
    if turn.chunk_delay_ms > 0 {
        stream.flush().await?;
    }
    Ok(())
}
