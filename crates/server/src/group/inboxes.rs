//! The connections from other members, and how many there may be.
//!
//! Without a password, everybody who reaches the port can send GROUP PEER. So a member that the roster lists
//! has places of its own. All other senders share a few places: new members of which this server has not
//! heard yet, removed members, and strangers.
//!
//! Invariants
//! - A member has at most [`OF_MEMBER_MAX`] connections. All senders that the roster does not list have
//!   [`UNLISTED_MAX`] connections together. At its limit, a new connection takes the place of the oldest one.

use std::net::{Shutdown, TcpStream};

use consensus::MemberId;
use membership::MEMBERS_MAX;

/// The maximum number of connections of one member. One is for its messages. The other is for a check of who
/// answers here, or for a new connection before the end of the old one is noticed.
const OF_MEMBER_MAX: usize = 2;
/// The maximum number of connections of all senders together that the roster does not list.
const UNLISTED_MAX: usize = MEMBERS_MAX;

/// The connections; see the module documentation.
#[derive(Default)]
pub(super) struct Inboxes {
    opened: u64,
    /// The open connections, in the order in which they were opened.
    open: Vec<Inbox>,
}

struct Inbox {
    number: u64,
    from: MemberId,
    is_listed: bool,
    socket: TcpStream,
}

impl Inboxes {
    /// Takes a connection in; returns its number.
    pub(super) fn open(&mut self, from: MemberId, is_listed: bool, socket: TcpStream) -> u64 {
        self.make_room(OF_MEMBER_MAX, |inbox| inbox.from == from);
        if !is_listed {
            self.make_room(UNLISTED_MAX, |inbox| !inbox.is_listed);
        }
        self.opened += 1;
        self.open.push(Inbox { number: self.opened, from, is_listed, socket });
        self.opened
    }

    /// Closes the oldest of the chosen connections if their number has reached `most`.
    fn make_room(&mut self, most: usize, is_chosen: impl Fn(&Inbox) -> bool) {
        let mut chosen = self.open.iter().filter(|inbox| is_chosen(inbox)).map(|inbox| inbox.number);
        if let Some(oldest) = chosen.next()
            && chosen.count() + 1 >= most
        {
            self.close(|inbox| inbox.number == oldest);
        }
    }

    /// Forgets a connection that has ended.
    pub(super) fn ended(&mut self, number: u64) {
        self.open.retain(|inbox| inbox.number != number);
    }

    /// The senders that were not listed when their connections were opened.
    pub(super) fn unlisted(&self) -> Vec<MemberId> {
        self.open.iter().filter(|inbox| !inbox.is_listed).map(|inbox| inbox.from).collect()
    }

    /// Closes the connections of a member.
    pub(super) fn close_of(&mut self, from: MemberId) {
        self.close(|inbox| inbox.from == from);
    }

    pub(super) fn close_all(&mut self) {
        self.close(|_| true);
    }

    fn close(&mut self, is_chosen: impl Fn(&Inbox) -> bool) {
        for inbox in self.open.extract_if(.., |inbox| is_chosen(inbox)) {
            let _ = inbox.socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    #[test]
    fn strangers_share_a_few_places_and_take_none_of_a_member() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let id = |number: usize| MemberId::new(number as u64 + 1).expect("not 0");
        let mut inboxes = Inboxes::default();
        let mut open = |from, is_listed| {
            let other = TcpStream::connect(address).expect("connects");
            let number = inboxes.open(from, is_listed, listener.accept().expect("accepts").0);
            (number, inboxes.open.len(), other)
        };
        let is_closed = |mut other: &TcpStream| {
            other.set_nonblocking(true).expect("a socket");
            matches!(other.read(&mut [0]), Ok(0))
        };
        let (_, _, member) = open(id(0), true);
        let (_, _, first) = open(id(1), false);
        let mut strangers = Vec::new();
        for number in 2..10 * UNLISTED_MAX {
            let (_, count, stranger) = open(id(number), false);
            assert!(count <= OF_MEMBER_MAX + UNLISTED_MAX);
            strangers.push(stranger);
        }
        assert!(is_closed(&first) && !is_closed(&member));
        let (_, _, second) = open(id(0), true);
        assert!(!is_closed(&member));
        let (number, count, _third) = open(id(0), true);
        assert!(
            is_closed(&member) && !is_closed(&second),
            "a newer connection takes the place of the oldest"
        );
        inboxes.ended(number);
        assert_eq!(inboxes.open.len(), count - 1);
        inboxes.close_all();
        assert!(strangers.iter().all(is_closed) && inboxes.open.is_empty());
    }
}
