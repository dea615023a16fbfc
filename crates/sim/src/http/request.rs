//! The requests of simulated HTTP clients, and their bytes.

use serde_json::{Value, json};

use super::{
    DATABASE,
    host::ADMIN,
    ledger::{Document, Ledger},
};

#[derive(Debug)]
pub(super) enum Request {
    CreateDatabase,
    LogIn,
    LogOut,
    /// The name of the client, asked for with the cookie of a session that has ended.
    WhoAmI,
    /// One document, which the client owns; `None` deletes it.
    Put(Document, Option<Value>),
    /// Several documents that the client owns.
    Bulk(Vec<(Document, Option<Value>)>),
    Get(Document),
    Changes,
}

impl Request {
    /// The documents that the request changes.
    pub(super) fn changed(&self) -> Vec<Document> {
        match self {
            Request::Put(document, _) => vec![*document],
            Request::Bulk(edits) => edits.iter().map(|(document, _)| *document).collect(),
            _ => Vec::new(),
        }
    }

    /// The bytes of the request.
    pub(super) fn encode(&self, cookie: Option<&str>, ledger: &Ledger) -> Vec<u8> {
        let with_rev = |document: Document| {
            let rev = ledger.rev(document).map(|rev| format!("?rev={rev}"));
            format!("/{DATABASE}/{}{}", document.id(), rev.unwrap_or_default())
        };
        let (method, path, body) = match self {
            Request::CreateDatabase => ("PUT", format!("/{DATABASE}"), None),
            Request::LogIn => {
                let login = json!({ "name": ADMIN.0, "password": ADMIN.1 });
                ("POST", "/_session".into(), Some(login))
            }
            Request::LogOut => ("DELETE", "/_session".into(), None),
            Request::WhoAmI => ("GET", "/_session".into(), None),
            Request::Put(document, Some(body)) => ("PUT", with_rev(*document), Some(body.clone())),
            Request::Put(document, None) => ("DELETE", with_rev(*document), None),
            Request::Bulk(edits) => {
                let docs: Vec<Value> =
                    edits.iter().map(|(document, body)| in_bulk(*document, body, ledger)).collect();
                ("POST", format!("/{DATABASE}/_bulk_docs"), Some(json!({ "docs": docs })))
            }
            Request::Get(document) => ("GET", format!("/{DATABASE}/{}", document.id()), None),
            Request::Changes => ("GET", format!("/{DATABASE}/_changes"), None),
        };
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        if let Some(cookie) = cookie {
            head += &format!("Cookie: AuthSession={cookie}\r\n");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        if !body.is_empty() {
            head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        format!("{head}\r\n{body}").into_bytes()
    }
}

fn in_bulk(document: Document, body: &Option<Value>, ledger: &Ledger) -> Value {
    let mut sent = body.clone().unwrap_or_else(|| json!({ "_deleted": true }));
    sent["_id"] = document.id().into();
    if let Some(rev) = ledger.rev(document) {
        sent["_rev"] = rev.into();
    }
    sent
}
