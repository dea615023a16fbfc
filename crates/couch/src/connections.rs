//! The connections of one thread: their beginning, the end of idle ones, and the end of all when the thread
//! stops.
//!
//! Everything here belongs to one thread; `Rc` and `RefCell` are enough, and no borrow lives across an await.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Notify, mpsc};

use super::{
    connection,
    front::{ConnectionPermit, Front},
    idle_timer::IdleTimer,
    socket::Socket,
    thread::HttpThread,
};

/// How often connections are checked.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How long replies may take to leave when the thread stops.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// An order to a thread whose clients have sockets of this kind.
pub enum HttpOrder<S> {
    /// Serve this connection.
    Connect {
        /// The connected socket of the client.
        stream: S,
        /// The address of the client.
        peer: SocketAddr,
        /// The permit of this connection; the number of permits is limited.
        permit: ConnectionPermit,
    },
    /// Report, by dropping the sender, that no write batch is half made: every change that had passed its
    /// last check (`WriteBatches::permitted`) before this order was taken is in the log.
    Report(std::sync::mpsc::Sender<()>),
    /// Close all connections, without waiting for replies.
    HangUp,
    /// Close everything once replies are sent, or after a few seconds; report, end.
    Stop(std::sync::mpsc::Sender<()>),
}

struct Connections {
    thread: Rc<HttpThread>,
    idle_timers: RefCell<HashMap<u64, Rc<IdleTimer>>>,
    /// Notified when a connection has ended.
    one_less: Notify,
    last: Cell<u64>,
    /// Whole seconds since the thread began.
    now_s: Rc<Cell<u32>>,
}

/// Serves connections on the calling thread until an order ends it. Must run within a
/// [`tokio::task::LocalSet`].
pub async fn serve_thread<S: Socket>(front: Arc<Front>, orders: mpsc::UnboundedReceiver<HttpOrder<S>>) {
    let connections = Rc::new(Connections {
        thread: Rc::new(HttpThread::new(front)),
        idle_timers: RefCell::default(),
        one_less: Notify::new(),
        last: Cell::new(0),
        now_s: Rc::default(),
    });
    connections.run(orders).await;
}

impl Connections {
    /// Carries out orders until [`HttpOrder::Stop`], then closes all connections.
    async fn run<S: Socket>(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<HttpOrder<S>>) {
        tokio::task::spawn_local(self.clone().end_idle());
        while let Some(order) = orders.recv().await {
            match order {
                HttpOrder::Connect { stream, peer, permit } => self.connect(stream, peer, permit),
                // A write batch is permitted and appended without an await in between, so none is half made
                // here.
                HttpOrder::Report(done) => drop(done),
                HttpOrder::HangUp => self.hang_up(),
                HttpOrder::Stop(done) => {
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn connect<S: Socket>(self: &Rc<Self>, stream: S, peer: SocketAddr, permit: ConnectionPermit) {
        let stream = match stream.register() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(target: "server", %error, %peer, "cannot serve a connection for HTTP");
                return;
            }
        };
        let id = self.last.get() + 1;
        self.last.set(id);
        let idle_timer = Rc::new(IdleTimer::new(self.now_s.clone()));
        idle_timer.set_stranger(self.thread.host().access.has_admins());
        self.idle_timers.borrow_mut().insert(id, idle_timer.clone());
        let connections = self.clone();
        tokio::task::spawn_local(async move {
            connection::serve::<S>(connections.thread.clone(), stream, peer, idle_timer).await;
            connections.idle_timers.borrow_mut().remove(&id);
            connections.one_less.notify_one();
            drop(permit);
        });
    }

    /// Disconnects, once a second, the clients whose timeout has expired, or all if their replies will never
    /// leave.
    async fn end_idle(self: Rc<Self>) {
        let begun = tokio::time::Instant::now();
        let mut look = tokio::time::interval(LOOK_PERIOD);
        loop {
            let now = look.tick().await;
            self.now_s.set(now.duration_since(begun).as_secs() as u32);
            let drops_replies = self.thread.host().replication.drops_replies();
            let idle_timers = self.idle_timers.borrow();
            let over = idle_timers.values().filter(|idle_timer| drops_replies || idle_timer.is_over());
            for idle_timer in over {
                if idle_timer.awaits_login() {
                    self.thread.host().traffic.login_timed_out();
                }
                idle_timer.ended.notify_one();
            }
        }
    }

    fn hang_up(&self) {
        self.idle_timers.borrow().values().for_each(|idle_timer| idle_timer.ended.notify_one());
    }

    async fn close(&self) {
        self.thread.stop();
        if self.thread.host().replication.drops_replies() {
            // Some replies may wait for a majority that never comes.
            self.hang_up();
        }
        let gone = async {
            while !self.idle_timers.borrow().is_empty() {
                self.one_less.notified().await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_GRACE, gone).await;
    }
}
