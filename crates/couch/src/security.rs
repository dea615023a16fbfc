//! `_security`: the permissions of a database.
//!
//! Server admins may do everything. As in CouchDB, other users may do nothing until `_security` permits it.
//! The database `_users` has rules of its own (`user_documents`).

use std::sync::Arc;

use documents::{DESIGN_PREFIX, Database, Snapshot, USERS_DATABASE};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    access,
    body::Body,
    failure::Failure,
    reply::{self, Reply},
    request::Call,
    thread::HttpThread,
    unique_json::Unique,
    user::{ADMIN_ROLE, User},
};

#[derive(Deserialize)]
struct Security {
    #[serde(default)]
    admins: Group,
    #[serde(default)]
    members: Group,
}

#[derive(Deserialize, Default)]
struct Group {
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    roles: Vec<String>,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.roles.is_empty()
    }

    fn has(&self, user: &User) -> bool {
        user.name.as_ref().is_some_and(|name| self.names.contains(name))
            || user.roles.iter().any(|role| self.roles.iter().any(|known| known == role))
    }
}

/// Whether a value is an object whose `admins` and `members`, if given, have the form that CouchDB requires.
/// Serde alone would take lists for objects.
fn is_valid(security: &Value) -> bool {
    let is_object = |name| security.get(name).is_none_or(Value::is_object);
    security.is_object()
        && is_object("admins")
        && is_object("members")
        && Security::deserialize(security).is_ok()
}

fn security_of(snapshot: &Snapshot) -> Security {
    let admins_only = || Group { names: Vec::new(), roles: vec![ADMIN_ROLE.into()] };
    let unset = || Security { admins: admins_only(), members: admins_only() };
    // A stored object was validated when it was set. One that was never set is empty, and does not parse.
    serde_json::from_slice(snapshot.security()).unwrap_or_else(|_| unset())
}

/// Checks that a user may use a database at all.
pub(super) fn check_member(user: &User, database: &Database) -> Result<(), Failure> {
    if user.is_admin {
        return Ok(());
    }
    let security = security_of(&database.snapshot());
    if security.members.is_empty() || security.members.has(user) || security.admins.has(user) {
        return Ok(());
    }
    Err(user.refused(match user.name {
        None => "You are not authorized to access this db.",
        Some(_) => "You are not allowed to access this db.",
    }))
}

/// Whether a user may still follow the changes of a database: a feed ends with the right to it.
pub(super) fn may_follow(thread: &HttpThread, user: &User, database: &Database) -> bool {
    access::still(thread, user).is_some_and(|user| {
        let is_open = **database.name() != *USERS_DATABASE || user.is_admin;
        is_open && check_member(&user, database).is_ok()
    })
}

/// Checks that the caller may change settings and design documents of the database.
pub(super) fn check_admin(call: &Call, database: &Database) -> Result<(), Failure> {
    if call.user.is_admin || security_of(&database.snapshot()).admins.has(&call.user) {
        return Ok(());
    }
    Err(call.user.refused("You are not a db or server admin."))
}

/// Checks that the caller may edit this document.
pub(super) fn check_edit(call: &Call, database: &Database, id: &str) -> Result<(), Failure> {
    if id.starts_with(DESIGN_PREFIX) { check_admin(call, database) } else { Ok(()) }
}

/// Serves `/DB/_security`
pub(super) async fn security(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" => {
            let snapshot = call.snapshot(database).await?;
            if snapshot.security().is_empty() {
                let admins = json!({ "roles": [ADMIN_ROLE] });
                let unset = json!({ "members": admins.clone(), "admins": admins });
                return Ok(reply::value(StatusCode::OK, &unset));
            }
            let mut body = snapshot.security().to_vec();
            body.push(b'\n');
            Ok(reply::json(StatusCode::OK, Body::from(body)))
        }
        "PUT" => {
            check_admin(call, database)?;
            if **database.name() == *USERS_DATABASE {
                // As in CouchDB: a change could let others read all users.
                return Err(Failure::Forbidden("You can't edit the security object of the user database."));
            }
            // An object in which two members have one name is refused: another reader could take the other
            // one.
            let Unique(security) = call.json().await?;
            if !is_valid(&security) {
                return Err(Failure::bad_request(
                    "admins and members must be objects with lists of names and roles",
                ));
            }
            let text = security.to_string();
            let size = (0, text.len());
            call.thread.change(database, size, |writer| writer.set_security(text.into())).await?;
            Ok(reply::ok(StatusCode::OK))
        }
        _ => Err(Failure::MethodNotAllowed("PUT,GET,HEAD")),
    }
}
