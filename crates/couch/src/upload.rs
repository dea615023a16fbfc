//! An attachment upload: kept in memory up to [`CHUNK_BYTES`], else stored in the log chunk by chunk.
//!
//! Invariants
//! - An upload keeps at most one chunk in memory, besides the bytes that are being added.
//! - The chunks of an aborted upload are discarded, at the latest by the first upload to the database after
//!   the next start or change of leader.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use documents::{
    ATTACHMENT_BYTES_MAX, AttachmentSource, CHUNK_BYTES, Database, Digest, DocError, UploadId, Uploaded,
};
use md5::{Digest as _, Md5};

use super::commit_gate::LogFailed;
use super::{failure::Failure, thread::HttpThread};

/// An upload in progress.
pub(super) struct Upload {
    thread: Rc<HttpThread>,
    database: Arc<Database>,
    /// Bytes not yet stored; at most one chunk between calls.
    buffer: Vec<u8>,
    stored: Option<Stored>,
    length: u64,
    digest: Md5,
}

/// Chunks in the log. Dropping this discards them, unless an edit has [taken](Stored::taken) them.
pub(super) struct Stored {
    thread: Rc<HttpThread>,
    database: Arc<Database>,
    upload: UploadId,
    is_taken: bool,
}

impl Upload {
    pub(super) fn new(thread: &Rc<HttpThread>, database: &Arc<Database>) -> Upload {
        let (thread, database) = (thread.clone(), database.clone());
        Upload { thread, database, buffer: Vec::new(), stored: None, length: 0, digest: Md5::new() }
    }

    /// Appends bytes to the upload.
    pub(super) async fn push(&mut self, mut bytes: Bytes) -> Result<(), Failure> {
        self.length += bytes.len() as u64;
        if self.length > ATTACHMENT_BYTES_MAX {
            return Err(Failure::Doc(DocError::TooLarge));
        }
        self.digest.update(&bytes);
        while self.buffer.len() + bytes.len() > CHUNK_BYTES {
            let part = bytes.split_to(CHUNK_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(&part);
            self.store().await?;
        }
        self.buffer.extend_from_slice(&bytes);
        Ok(())
    }

    /// The source of the attachment, and the guard of its chunks until an edit refers to them.
    pub(super) async fn finish(
        mut self,
        content_type: Arc<str>,
        revpos: Option<u32>,
    ) -> Result<(AttachmentSource, Option<Stored>), Failure> {
        if self.stored.is_none() {
            let digest = self.digest();
            let bytes = std::mem::take(&mut self.buffer).into();
            return Ok((AttachmentSource::Inline { content_type, bytes, digest, revpos }, None));
        }
        let (Uploaded { upload, length, digest }, stored) = self.finish_stored().await?;
        Ok((AttachmentSource::Upload { content_type, upload, length, digest, revpos }, Some(stored)))
    }

    /// Like [`Upload::finish`], with all bytes in the log.
    pub(super) async fn finish_stored(mut self) -> Result<(Uploaded, Stored), Failure> {
        self.store().await?;
        let stored = self.stored.take().ok_or(LogFailed)?;
        Ok((Uploaded { upload: stored.upload, length: self.length, digest: self.digest() }, stored))
    }

    /// The digest of all bytes. Call once.
    fn digest(&mut self) -> Digest {
        Digest(std::mem::take(&mut self.digest).finalize().into())
    }

    async fn store(&mut self) -> Result<(), Failure> {
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        let known = self.stored.as_ref().map(|stored| stored.upload);
        let size = (1, chunk.len());
        let upload = self
            .thread
            .submit(&self.database, size, move |writer| {
                let upload = known.map_or_else(|| writer.begin_upload(), Ok)?;
                writer.put_chunk(upload, chunk)?;
                Ok(upload)
            })
            .await?
            .0?;
        let (thread, database) = (self.thread.clone(), self.database.clone());
        self.stored.get_or_insert_with(|| Stored { thread, database, upload, is_taken: false });
        Ok(())
    }
}

impl Stored {
    /// Leaves the chunks to an edit, which keeps or discards them.
    pub(super) fn taken(mut self) {
        self.is_taken = true;
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if !self.is_taken {
            discard(&self.thread, &self.database, self.upload);
        }
    }
}

/// Discards chunks to which no edit refers.
pub(super) fn discard(thread: &Rc<HttpThread>, database: &Arc<Database>, upload: UploadId) {
    let (thread, database) = (thread.clone(), database.clone());
    tokio::task::spawn_local(async move {
        // If nothing can be written, the first upload to the database after the next start discards them.
        let _ = thread.submit(&database, (1, 0), move |writer| writer.discard_upload(upload)).await;
    });
}
