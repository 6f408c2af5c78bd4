//! The body of an answer as a stream of events, with limits that only content can satisfy.

use super::{failure, mask};
use crate::decode::Decoder;
use crate::provider::EventStream;
use crate::secret::Secret;
use futures::stream;
use reqwest::Response;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::provider::ProviderEvent;
use tokio::time::{Instant, timeout_at};

/// After the finish reason only the token counts and the farewell can come.
const FAREWELL: Duration = Duration::from_secs(10);

/// A response being read. Everything is in here, so dropping it closes the connection.
pub(super) struct Reading {
    pub response: Response,
    pub decoder: Decoder,
    /// When the current limit runs out.
    pub deadline: Instant,
    /// No content has come yet.
    pub first: bool,
    pub first_byte: Duration,
    pub idle: Duration,
    pub secrets: Arc<[Secret]>,
    /// An error that is given after the events before it.
    pub held: Option<ProviderError>,
}

impl Reading {
    /// The stream of the contract.
    pub fn into_stream(self) -> EventStream {
        Box::pin(stream::unfold(Some(self), |reading| async {
            let mut reading = reading?;
            let item = reading.next().await?;
            let over = item.is_err() || (reading.decoder.is_ended() && reading.held.is_none());
            Some((item, (!over).then_some(reading)))
        }))
    }

    async fn next(&mut self) -> Option<Result<Vec<ProviderEvent>, ProviderError>> {
        if let Some(error) = self.held.take() {
            return Some(Err(error));
        }
        loop {
            if self.decoder.is_ended() {
                return None;
            }
            let events = match timeout_at(self.deadline, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    let events = self.decoder.feed(&bytes);
                    self.note_content();
                    events
                }
                Ok(Ok(None)) => self.decoder.end(),
                Ok(Err(error)) => self.decoder.fail(ProviderError::new(
                    ErrorClass::Transport,
                    format!(
                        "the connection broke in the middle of the response: {}",
                        failure::chain(&error)
                    ),
                )),
                Err(_) => {
                    let error = self.timeout();
                    self.decoder.fail(error)
                }
            };
            if !events.is_empty() {
                return Some(self.split(events));
            }
        }
    }

    fn note_content(&mut self) {
        if self.decoder.take_content() {
            self.first = false;
            let limit = if self.decoder.finish_seen() {
                self.idle.min(FAREWELL)
            } else {
                self.idle
            };
            self.deadline = Instant::now() + limit;
        }
    }

    fn timeout(&self) -> ProviderError {
        let message = if self.first {
            format!(
                "no content came within {} s of sending (first_byte_timeout_s)",
                self.first_byte.as_secs_f64()
            )
        } else {
            format!(
                "the response stalled: no content for {} s (idle_timeout_s)",
                self.idle.as_secs_f64()
            )
        };
        ProviderError::new(ErrorClass::Timeout, message)
    }

    /// An error the decoder gave becomes the `Err` that ends the stream, after the events before it.
    fn split(
        &mut self,
        mut events: Vec<ProviderEvent>,
    ) -> Result<Vec<ProviderEvent>, ProviderError> {
        let Some(ProviderEvent::Error(_)) = events.last() else {
            return Ok(events);
        };
        let Some(ProviderEvent::Error(mut error)) = events.pop() else {
            return Ok(events);
        };
        mask(&self.secrets, &mut error);
        if events.is_empty() {
            return Err(error);
        }
        self.held = Some(error);
        Ok(events)
    }
}
