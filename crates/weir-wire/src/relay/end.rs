//! The end of a body: framing it, showing it to the watcher, and ending a body whose sender was cut off.

use super::{Framing, Mark, Relay, RelayError, Seen, Stopped, Watch, frame, sees_pieces};
use weir_h1::write_last_chunk;

impl Relay {
    /// Ends a body that its sender did not end. The watcher sees the end, with `trailers` that say so, and
    /// [`Relay::poll`] writes what the watcher makes of it. False if that is impossible: the body has a length or
    /// chunks, there is no watcher, or a piece is still in progress.
    ///
    /// # Errors
    /// As [`Relay::poll`].
    pub fn end_for_sender(
        &mut self,
        trailers: Vec<u8>,
        watch: Option<&mut dyn Watch>,
    ) -> Result<bool, RelayError> {
        let idle = !self.finished && !self.pending && self.lost.is_none() && self.gathers.is_none();
        let able = idle && self.framing != Framing::Length && self.reader.ends_with_connection();
        if !able || !sees_pieces(&watch) || self.told_end {
            return Ok(false);
        }
        self.reader.end(trailers).map_err(RelayError::Malformed)?;
        self.finish(watch)?;
        Ok(true)
    }

    /// Frames the end of a body that was read completely.
    pub(super) fn finish(&mut self, watch: Option<&mut dyn Watch>) -> Result<(), RelayError> {
        if let Some(watch) = &watch
            && !self.reader.trailers().is_empty()
        {
            self.reader.retain_trailers(|name| watch.may_trail(name));
        }
        // With a fixed length, the last data piece was already marked as the end. Otherwise the end is a piece of its
        // own.
        if let Some(watch) = watch.filter(|watch| watch.sees_pieces() && !self.told_end) {
            self.told_end = true;
            let seen = Seen { data: &[], mark: Mark::Last, trailers: Some(self.reader.trailers_mut()) };
            let tail = watch.piece(seen).map_err(|Stopped| RelayError::Stopped)?;
            if let Some(tail) = tail.filter(|_| self.framing != Framing::Length) {
                frame(self.framing, &tail, false, None, &mut self.out)?;
            }
            if watch.has_pending() {
                (self.pending, self.ends) = (true, true);
                return Ok(());
            }
        }
        self.end();
        Ok(())
    }

    /// Writes the final framing.
    pub(super) fn end(&mut self) {
        match self.framing {
            Framing::Chunked => write_last_chunk(self.reader.trailers(), &mut self.out),
            Framing::Records => weir_fcgi::write_input_end(&mut self.out),
            Framing::Close | Framing::Length => {}
        }
        self.finished = true;
    }
}
