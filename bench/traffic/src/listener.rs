//! A connection that subscribes to some channels, checks every message, and may unsubscribe and subscribe
//! again.

use std::net::SocketAddr;

use mio::{Registry, Token};

use crate::{
    connection::Connection,
    failure::Failure,
    frames::{Frame, Garbled},
    ledger::Ledger,
    message::{Stamp, write_command},
    sequence::Subscription,
};

/// One delay in this many is recorded, because recording costs as much as checking.
const DELAYS_EVERY: u64 = 16;

/// The start of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// SUBSCRIBE: messages published from now on.
    Now,
    /// XSUBSCRIBE FROM $: the same, from the log.
    LogEnd,
    /// XSUBSCRIBE FROM -: all messages in the log.
    LogStart,
}

/// A connection with its subscriptions.
#[derive(Debug)]
pub struct Listener {
    connection: Connection,
    ears: Ears,
}

/// The channels of a listener: as many as `subscriptions` in a row from `first` on, wrapping around at the
/// last one.
#[derive(Debug)]
struct Ears {
    first: usize,
    from: From,
    subscriptions: Vec<Option<Subscription>>,
    state: State,
    /// Number of confirmations received in this state, in the order of the requests.
    confirmed: usize,
    /// By own channel: number of confirmed messages of each publisher when the end of the subscription was
    /// requested.
    owed: Vec<Vec<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Silent,
    Beginning,
    Listening,
    Ending,
}

impl Listener {
    /// Connects without subscribing.
    pub fn open(
        address: SocketAddr,
        registry: &Registry,
        token: Token,
        first: usize,
        span: usize,
        from: From,
    ) -> Result<Listener, Failure> {
        let connection = Connection::open(address, registry, token)?;
        let subscriptions = (0..span).map(|_| None).collect();
        Ok(Listener {
            connection,
            ears: Ears { first, from, subscriptions, state: State::Silent, confirmed: 0, owed: Vec::new() },
        })
    }

    /// Subscribes to all its channels, with one command each.
    pub fn begin(&mut self, ledger: &Ledger) -> Result<(), Failure> {
        self.ears.enter(State::Beginning);
        match self.ears.from {
            From::Now => self.ask(ledger, b"SUBSCRIBE", &[]),
            From::LogEnd => self.ask(ledger, b"XSUBSCRIBE", &[b"FROM", b"$"]),
            From::LogStart => self.ask(ledger, b"XSUBSCRIBE", &[b"FROM", b"-"]),
        }
    }

    /// Unsubscribes from all its channels, with one command each.
    pub fn end(&mut self, ledger: &Ledger) -> Result<(), Failure> {
        self.ears.enter(State::Ending);
        self.ears.owed =
            self.ears.channels(ledger).map(|channel| ledger.confirmed(channel).to_vec()).collect();
        self.ask(ledger, b"UNSUBSCRIBE", &[])
    }

    fn ask(&mut self, ledger: &Ledger, verb: &[u8], more: &[&[u8]]) -> Result<(), Failure> {
        let mut request = Vec::new();
        for channel in self.ears.channels(ledger) {
            write_command(&mut request, &[&[verb, ledger.name(channel)], more].concat());
        }
        self.connection.send(&request)
    }

    /// Changes the channels. The listener must not have any subscriptions.
    ///
    /// # Panics
    ///
    /// If the listener has subscriptions.
    pub fn move_to(&mut self, first: usize) {
        assert!(self.is_silent(), "subscriptions are to be ended first");
        self.ears.first = first;
    }

    /// The first of its channels.
    pub fn first(&self) -> usize {
        self.ears.first
    }

    /// Whether all its subscriptions are confirmed.
    pub fn is_listening(&self) -> bool {
        self.ears.state == State::Listening
    }

    /// Whether the listener has no subscriptions, and the server has confirmed the end of all of them.
    pub fn is_silent(&self) -> bool {
        self.ears.state == State::Silent
    }

    /// Handles readiness of the socket.
    pub fn advance(&mut self, buffer: &mut [u8], ledger: &mut Ledger, now_us: u64) -> Result<(), Failure> {
        self.connection.flush()?;
        let ears = &mut self.ears;
        self.connection.receive(buffer, |frame| {
            match frame {
                Frame::Message { channel, message } => ears.hear(ledger, channel, message, now_us),
                Frame::Began { name } => ears.note_begun(ledger, name)?,
                Frame::Ended { name } => ears.note_ended(ledger, name)?,
                Frame::Integer(_) | Frame::Error(_) => return Err(Garbled.into()),
            }
            Ok(())
        })
    }

    /// Whether all messages sent to its channels were received.
    pub fn has_all(&self, ledger: &Ledger) -> bool {
        let channels = self.ears.channels(ledger).zip(&self.ears.subscriptions);
        channels
            .into_iter()
            .all(|(channel, it)| it.as_ref().is_none_or(|it| it.has_all(ledger.sent(channel))))
    }

    /// Counts missing messages as lost. To be called when no more will arrive.
    pub fn judge(&self, ledger: &mut Ledger) {
        for (channel, subscription) in self.ears.channels(ledger).zip(&self.ears.subscriptions) {
            if let Some(subscription) = subscription {
                let mut faults = ledger.faults;
                subscription.end(ledger.sent(channel), &mut faults);
                ledger.faults = faults;
            }
        }
    }
}

impl Ears {
    fn channels(&self, ledger: &Ledger) -> impl Iterator<Item = usize> + use<> {
        let (first, channels) = (self.first, ledger.channels());
        (0..self.subscriptions.len()).map(move |index| (first + index) % channels)
    }

    #[inline]
    fn hear(&mut self, ledger: &mut Ledger, channel: &[u8], message: &[u8], now_us: u64) {
        ledger.deliveries += 1;
        let Some(stamp) = Stamp::read(message) else {
            ledger.faults.stray += 1;
            return;
        };
        if ledger.deliveries.is_multiple_of(DELAYS_EVERY) {
            ledger.delays.add(now_us.saturating_sub(stamp.sent_us), 1);
        }
        let number = stamp.channel as usize;
        let index =
            if number >= self.first { number - self.first } else { number + ledger.channels() - self.first };
        match self.subscriptions.get_mut(index) {
            Some(Some(subscription)) if channel == ledger.name(number) => {
                subscription.receive(stamp.publisher as usize, stamp.number, &mut ledger.faults);
            }
            _ => ledger.faults.stray += 1,
        }
    }

    fn note_begun(&mut self, ledger: &Ledger, name: &[u8]) -> Result<(), Failure> {
        let channel = self.expect(ledger, State::Beginning, name)?;
        let sent = ledger.sent(channel);
        self.subscriptions[self.confirmed] = Some(match self.from {
            From::Now | From::LogEnd => Subscription::confirmed(sent),
            From::LogStart => Subscription::confirmed(&vec![0; sent.len()]),
        });
        self.note_confirmed(State::Listening);
        Ok(())
    }

    fn note_ended(&mut self, ledger: &mut Ledger, name: &[u8]) -> Result<(), Failure> {
        self.expect(ledger, State::Ending, name)?;
        if let Some(subscription) = self.subscriptions[self.confirmed].take() {
            subscription.end(&self.owed[self.confirmed], &mut ledger.faults);
        }
        self.note_confirmed(State::Silent);
        Ok(())
    }

    fn note_confirmed(&mut self, when_all_are: State) {
        self.confirmed += 1;
        if self.confirmed == self.subscriptions.len() {
            self.enter(when_all_are);
        }
    }

    fn enter(&mut self, state: State) {
        (self.state, self.confirmed) = (state, 0);
    }

    /// The channel of the next confirmation; the server must name the same one.
    fn expect(&self, ledger: &Ledger, state: State, name: &[u8]) -> Result<usize, Failure> {
        let next = self.channels(ledger).nth(self.confirmed).filter(|_| self.state == state);
        next.filter(|channel| ledger.name(*channel) == name).ok_or_else(|| Garbled.into())
    }
}
