//! The state shared by all connections of a measurement: the channels, the number of messages from each
//! publisher to each channel, and the faults.

use crate::{
    latency::Latencies,
    message::{Publishing, Stamp},
    sequence::Faults,
};

/// Counts of sent, confirmed and received messages.
#[derive(Debug)]
pub struct Ledger {
    names: Vec<Vec<u8>>,
    publishings: Vec<Publishing>,
    publishers: usize,
    /// By channel and publisher: number of messages sent.
    sent: Vec<u64>,
    /// By channel and publisher: number of messages with a reply.
    confirmed: Vec<u64>,
    /// Number of replies to PUBLISH.
    pub publishes: u64,
    /// Sum of the receiver counts in the replies.
    pub heard: u64,
    /// Number of messages received.
    pub deliveries: u64,
    /// Times from sending a message to receiving it.
    pub delays: Latencies,
    /// The faults found.
    pub faults: Faults,
}

impl Ledger {
    /// A ledger of this many channels and publishers, without messages.
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

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.names.len()
    }

    /// The name of a channel.
    pub fn name(&self, channel: usize) -> &[u8] {
        &self.names[channel]
    }

    /// Number of messages that each publisher has sent to a channel.
    pub fn sent(&self, channel: usize) -> &[u64] {
        &self.sent[channel * self.publishers..][..self.publishers]
    }

    /// Number of confirmed messages of each publisher to a channel.
    pub fn confirmed(&self, channel: usize) -> &[u64] {
        &self.confirmed[channel * self.publishers..][..self.publishers]
    }

    /// Appends the PUBLISH command for a publisher's next message to a channel, stamped with `now_us`.
    pub fn publish(&mut self, publisher: usize, channel: usize, now_us: u64, out: &mut Vec<u8>) {
        let sent = &mut self.sent[channel * self.publishers + publisher];
        let stamp =
            Stamp { publisher: publisher as u32, channel: channel as u32, number: *sent, sent_us: now_us };
        *sent += 1;
        self.publishings[channel].write(stamp, out);
    }

    /// Records the reply to a publisher's next message to a channel, with its number of receivers.
    pub fn confirm(&mut self, publisher: usize, channel: usize, heard: u64) {
        self.confirmed[channel * self.publishers + publisher] += 1;
        self.publishes += 1;
        self.heard += heard;
    }

    /// Sets the number of messages that the publishers on another thread have sent to a channel.
    pub fn owe(&mut self, channel: usize, sent: &[u64]) {
        self.sent[channel * self.publishers..][..self.publishers].copy_from_slice(sent);
    }
}

/// The name of a channel by its number.
pub fn channel_name(channel: usize) -> Vec<u8> {
    format!("channel:{channel:07}").into_bytes()
}
