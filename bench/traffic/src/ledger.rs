//! What all connections of one measurement have in common: the channels, how many messages each publisher has sent to each,
//! and what went wrong.

use crate::{
    latency::Latencies,
    message::{Publishing, Stamp},
    sequence::Faults,
};

/// See the module documentation.
#[derive(Debug)]
pub struct Ledger {
    names: Vec<Vec<u8>>,
    publishings: Vec<Publishing>,
    publishers: usize,
    /// By channel and publisher: messages sent.
    sent: Vec<u64>,
    /// By channel and publisher: messages whose reply has come.
    confirmed: Vec<u64>,
    /// All replies to PUBLISH.
    pub publishes: u64,
    /// How many heard each message, by the replies, in all.
    pub heard: u64,
    /// All messages received.
    pub deliveries: u64,
    /// From sending a message to receiving it.
    pub delays: Latencies,
    /// What went wrong.
    pub faults: Faults,
}

impl Ledger {
    /// Nothing has been sent.
    pub fn new(channels: usize, publishers: usize) -> Ledger {
        let names: Vec<_> = (0..channels).map(channel_name).collect();
        Ledger {
            publishings: names.iter().map(|name| Publishing::to(name)).collect(),
            names,
            publishers,
            sent: vec![0; channels * publishers],
            confirmed: vec![0; channels * publishers],
            publishes: 0,
            heard: 0,
            deliveries: 0,
            delays: Latencies::default(),
            faults: Faults::default(),
        }
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.names.len()
    }

    /// The name of a channel.
    pub fn name(&self, channel: usize) -> &[u8] {
        &self.names[channel]
    }

    /// How many messages each publisher has sent to a channel.
    pub fn sent(&self, channel: usize) -> &[u64] {
        &self.sent[channel * self.publishers..][..self.publishers]
    }

    /// How many messages each publisher has had confirmed.
    pub fn confirmed(&self, channel: usize) -> &[u64] {
        &self.confirmed[channel * self.publishers..][..self.publishers]
    }

    /// Appends the command for a publisher's next message to a channel, sent now.
    pub fn publish(&mut self, publisher: usize, channel: usize, now_us: u64, out: &mut Vec<u8>) {
        let sent = &mut self.sent[channel * self.publishers + publisher];
        let stamp =
            Stamp { publisher: publisher as u32, channel: channel as u32, number: *sent, sent_us: now_us };
        *sent += 1;
        self.publishings[channel].write(stamp, out);
    }

    /// The reply to a publisher's next message to a channel has come: so many hear it.
    pub fn confirm(&mut self, publisher: usize, channel: usize, heard: u64) {
        self.confirmed[channel * self.publishers + publisher] += 1;
        self.publishes += 1;
        self.heard += heard;
    }

    /// Somebody else has published so many messages to a channel, by publisher.
    pub fn owe(&mut self, channel: usize, sent: &[u64]) {
        self.sent[channel * self.publishers..][..self.publishers].copy_from_slice(sent);
    }
}

/// The name of a channel by its number.
pub fn channel_name(channel: usize) -> Vec<u8> {
    format!("channel:{channel:07}").into_bytes()
}
