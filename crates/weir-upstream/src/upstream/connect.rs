//! The way to a connection: from the pool, by waiting at the gate, or by dialling.

use super::connection::{ConnectError, Connection, Owner};
use super::endpoint::{Active, LocalEndpoint};
use super::gate::Gate;
use super::health::Health;
use super::local::{LocalUpstream, Waited};
use super::open::{Opening, count_failed, no_streams, open};
use super::shared::{Room, SharedConnections};
use super::spec::Protocol;
use crate::error::{self, Cause};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use weir_wire::time;

/// A connection, and what it took.
pub struct Connected {
    pub connection: Connection,
    pub connect: Duration,
    pub tls: Duration,
}

/// What the pool brought.
enum Entered {
    /// The right to open a connection; with a limit, its place under it.
    Dial(Option<OwnedSemaphorePermit>),
    /// A connection, to the endpoint that the attempt is now counted at.
    Connected(Connected),
}

impl Entered {
    #[inline]
    fn pooled(connection: Connection) -> Self {
        Self::Connected(Connected { connection, connect: Duration::ZERO, tls: Duration::ZERO })
    }

    /// A stream; `dialled`: of a connection that was opened for it.
    #[inline]
    fn stream(
        upstream: &LocalUpstream,
        shared: &SharedConnections,
        connection: Connection,
        dialled: bool,
    ) -> Self {
        if connection.reused {
            upstream.cells.reused.inc();
        }
        let (connect, tls) = if dialled { shared.took.get() } else { Default::default() };
        Self::Connected(Connected { connection, connect, tls })
    }
}

/// What an attempt needs of a connection.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Not from the pool.
    pub fresh: bool,
    /// For a request that must not be sent twice: see `Pool::take`.
    pub once: bool,
    /// When the exchange must be over, and the cause if it is not.
    pub end: Option<(Instant, &'static Cause)>,
    /// Whether another endpoint can be tried, should this one not be connected to.
    pub another: bool,
    /// The client, where the connection is to be its own.
    pub owner: Option<Rc<Owner>>,
}

/// What is left of an exchange's time, and the cause when nothing is.
type Left = Option<(Duration, &'static Cause)>;

impl Wanted {
    #[inline]
    fn left(&self) -> Left {
        let (end, cause) = self.end?;
        Some((end.saturating_duration_since(Instant::now()), cause))
    }

    /// How long to wait for a connect that may take `connect`, where the exchange cannot wait so long, and what it comes to then. With
    /// another endpoint to try, half of the exchange's time is kept for that.
    #[inline]
    fn patience(&self, left: Left, connect: Duration) -> Option<(Duration, ConnectError)> {
        let (left, cause) = left?;
        let (time, late) = match self.another {
            true => (left / 2, ConnectError::TIMED_OUT),
            false => (left, ConnectError { cause, elsewhere: false, ..ConnectError::TIMED_OUT }),
        };
        (time < connect).then_some((time, late))
    }
}

/// How long to wait for a place under the limit of connections: as long as for a connect, unless the exchange must be over before
/// that; and the cause if there is none by then.
#[inline]
fn patience_for_place(left: Left, connect: Duration) -> (Duration, &'static Cause) {
    left.filter(|(left, _)| *left < connect).unwrap_or((connect, &error::PENDING_TIMEOUT))
}

/// A connection from the pool, for which nobody has to wait: nearly every attempt gets one.
#[inline]
pub fn pooled(upstream: &LocalUpstream, active: &Active, wanted: &Wanted) -> Option<Connection> {
    let pool = &active.get().pool;
    let exclusive = match upstream.spec.protocol {
        Protocol::Http1 => true,
        Protocol::Negotiated => pool.shared.chose_http1(),
        Protocol::Http2 => false,
    };
    if wanted.fresh || !exclusive {
        return None;
    }
    let connection = match &wanted.owner {
        None => pool.take(wanted.once),
        Some(owner) => pool.owned.take(owner, wanted.once),
    }?;
    upstream.cells.reused.inc();
    Some(connection)
}

/// A connection to the endpoint of the attempt, pooled or new. The attempt may be counted elsewhere afterwards: at the
/// endpoint whose connection was handed over.
///
/// # Errors
/// Why there is none. A failed attempt is counted and logged.
pub async fn connect(
    upstream: &Rc<LocalUpstream>,
    active: &mut Active,
    wanted: Wanted,
) -> Result<Connected, ConnectError> {
    let entered = match upstream.spec.protocol {
        Protocol::Http1 => enter_exclusive(upstream, active, &wanted).await?,
        Protocol::Negotiated if active.get().pool.shared.chose_http1() => {
            enter_exclusive(upstream, active, &wanted).await?
        }
        Protocol::Http2 | Protocol::Negotiated => Box::pin(enter_shared(upstream, active, &wanted)).await?,
    };
    match entered {
        Entered::Connected(connected) => Ok(connected),
        // Boxed: dialling is rare, and its future would make that of every idle connection larger.
        Entered::Dial(permit) => {
            let at = active.get();
            if is_avoided(at) && !Box::pin(comes_back(&at.endpoint.health, look)).await {
                return Err(ConnectError::AVOIDED);
            }
            let Opening { exclusive, connect, tls } =
                Box::pin(open_exclusive(upstream, active, permit, wanted)).await?;
            // An endpoint that chose HTTP/1.1 before may choose otherwise now.
            let connection = exclusive.or_else(|| at.pool.shared.take(Room::Any));
            let connection = connection.ok_or(ConnectError::here(&error::PENDING_TIMEOUT))?;
            Ok(Connected { connection, connect, tls })
        }
    }
}

/// The way to a connection that carries one exchange at a time.
async fn enter_exclusive(
    upstream: &LocalUpstream,
    active: &mut Active,
    wanted: &Wanted,
) -> Result<Entered, ConnectError> {
    if let Some(connection) = pooled(upstream, active, wanted) {
        return Ok(Entered::pooled(connection));
    }
    let Some(gate) = &upstream.spec.gate else { return Ok(Entered::Dial(None)) };
    if let Some(permit) = upstream.enter(gate) {
        return Ok(Entered::Dial(Some(permit)));
    }
    let (limit, late) = patience_for_place(wanted.left(), upstream.spec.timeouts.connect);
    match upstream.wait(gate, limit).await {
        Waited::Permit(permit) => Ok(Entered::Dial(Some(permit))),
        Waited::Given(given) => {
            *active = Active::new(&given.endpoints, given.index);
            upstream.cells.reused.inc();
            Ok(Entered::pooled(given.connection))
        }
        Waited::TooMany => Err(ConnectError::here(&error::PENDING_LIMIT)),
        Waited::TooLong => Err(ConnectError::here(late)),
    }
}

/// The way to a stream of a connection that carries many: one with ample room, else a new connection, else any with room,
/// else whichever comes first.
async fn enter_shared(
    upstream: &Rc<LocalUpstream>,
    active: &mut Active,
    wanted: &Wanted,
) -> Result<Entered, ConnectError> {
    let mut fresh = wanted.fresh;
    let shared = Rc::clone(&active.get().pool.shared);
    let gate = upstream.spec.gate.as_deref();
    let failures = shared.failures();
    let (mut dialled, mut avoided, mut end, mut waiting) = (false, false, None, None);
    loop {
        let found = if fresh { None } else { shared.take(Room::Ample) };
        if let Some(connection) = found {
            return Ok(Entered::stream(upstream, &shared, connection, dialled));
        }
        // Of an endpoint that takes no requests for now, more connections would not take any either.
        if !shared.is_dialling() && !shared.is_paused() {
            let at = active.get();
            avoided = is_avoided(at) && !Box::pin(comes_back(&at.endpoint.health, look)).await;
        }
        if !avoided && !shared.is_dialling() && !shared.is_paused() {
            // An idle one that makes room is not of this endpoint: it would have been taken.
            let permit = gate.map(|gate| upstream.enter(gate));
            if let None | Some(Some(_)) = &permit {
                dialled = true;
                open_shared(upstream, active.place(), permit.flatten());
            }
        }
        // One that is to be fresh waits for the connection that is being made, whoever began it.
        if !std::mem::take(&mut fresh)
            && let Some(connection) = shared.take(Room::Any)
        {
            return Ok(Entered::stream(upstream, &shared, connection, dialled));
        }
        if avoided {
            return Err(ConnectError::AVOIDED);
        }
        if shared.is_paused() && !shared.is_dialling() && has_another(upstream, active) {
            return Err(no_streams(upstream, active.get()));
        }
        let (end, late, dialled_by) = *end.get_or_insert_with(|| {
            let (own, now) = (upstream.spec.timeouts.connect, Instant::now());
            let left = wanted.left();
            let (limit, cause) = patience_for_place(left, own);
            let (patience, late) = wanted.patience(left, own).unwrap_or((own, ConnectError::TIMED_OUT));
            (now + limit, ConnectError::here(cause), (now + patience, late))
        });
        // While one connects nothing is full: it is the upstream that lets us wait.
        let (end, late) = if shared.is_dialling() { dialled_by } else { (end, late) };
        if let (Some(gate), None, false) = (gate, &waiting, shared.is_dialling()) {
            waiting = Some(upstream.queue(gate).ok_or(ConnectError::here(&error::PENDING_LIMIT))?);
        }
        let is_late = tokio::select! {
            () = shared.changed() => false,
            permit = acquire(gate), if !shared.is_dialling() && !shared.is_paused() => {
                dialled = true;
                open_shared(upstream, active.place(), permit);
                false
            }
            () = time::sleep_until(end) => true,
        };
        if let Some(e) = shared.failed_since(failures) {
            return Err(e);
        }
        if is_late {
            return Err(late);
        }
        if shared.chose_http1() {
            return enter_exclusive(upstream, active, wanted).await;
        }
    }
}

/// Whether another endpoint than that of the attempt is in rotation.
#[inline]
fn has_another(upstream: &LocalUpstream, active: &Active) -> bool {
    let (endpoints, index) = active.place();
    upstream.has_in_rotation(&endpoints, &std::iter::once(index).collect())
}

/// Whether an endpoint cannot be connected to, and was dialled a moment ago.
#[inline]
fn is_avoided(at: &LocalEndpoint) -> bool {
    let health = &at.endpoint.health;
    health.is_unreachable() && !health.may_dial(Instant::now())
}

/// How long a request waits for what another finds out of an endpoint that could not be connected to, in [`LOOK`]s. Where all
/// endpoints are dead an answer must come within 50 ms.
const LOOKS: u32 = 25;
const LOOK: Duration = Duration::from_millis(1);

/// Whether an endpoint that another request is dialling can be connected to again. It is only asked for where no other is left: when one
/// endpoint dies just after the others have come back, all requests find the others avoided at once, and only one may dial.
async fn comes_back(health: &Health, mut pause: impl AsyncFnMut()) -> bool {
    for _ in 0..LOOKS {
        if !health.is_being_dialled() {
            break;
        }
        pause().await;
    }
    !health.is_unreachable()
}

async fn look() {
    time::sleep(LOOK).await;
}

/// Finds out in the background whether an endpoint that is out of rotation can be connected to again. The connection is
/// kept for the requests that then come.
#[inline]
pub(super) fn try_again(upstream: &Rc<LocalUpstream>, endpoints: &Rc<[LocalEndpoint]>, index: usize) {
    let at = &endpoints[index];
    if at.pool.shared.is_dialling() {
        return;
    }
    if at.pool.shared.is_paused() {
        // More connections would bring no streams either; the open one tells when it takes requests again.
        return at.endpoint.health.connect_failed(&error::UPSTREAM_NO_STREAMS, Instant::now());
    }
    let permit = match &upstream.spec.gate {
        None => None,
        Some(gate) => match upstream.enter(gate) {
            Some(permit) => Some(permit),
            // All places are taken, perhaps for good: a request that comes to have one finds out.
            None => return at.endpoint.health.connected(Instant::now()),
        },
    };
    open_shared(upstream, (Rc::clone(endpoints), index), permit);
}

/// Opens a connection for one request, which waits for it no longer than its own time allows.
///
/// The connect has all of `timeouts.connect`: only then is it known whether the endpoint can be connected to, whatever the deadline of the
/// request, and whenever its client leaves. So one connect at a time of a core to an endpoint is a task of its own, which goes on without the
/// request; what it brings is kept for the next. Of many that would time out, one is enough to learn it.
async fn open_exclusive(
    upstream: &Rc<LocalUpstream>,
    active: &Active,
    permit: Option<OwnedSemaphorePermit>,
    wanted: Wanted,
) -> Result<Opening, ConnectError> {
    let at = active.get();
    let patience = wanted.patience(wanted.left(), upstream.spec.timeouts.connect);
    if at.pool.shared.is_dialling() {
        let opening = open(upstream, at, permit, wanted.owner.as_ref());
        let Some((time, late)) = patience else { return opening.await };
        return time::timeout(time, opening).await.unwrap_or_else(|_| {
            count_failed(upstream, at, late.cause);
            Err(late)
        });
    }
    let (tell, told) = oneshot::channel();
    let dialling = at.pool.shared.begin_dialling();
    let (upstream, (endpoints, index)) = (Rc::clone(upstream), active.place());
    drop(tokio::task::spawn_local(async move {
        let opened = open(&upstream, &endpoints[index], permit, wanted.owner.as_ref()).await;
        drop(dialling);
        if let Err(Ok(Opening { exclusive: Some(connection), .. })) = tell.send(opened) {
            upstream.give_back(&Active::new(&endpoints, index), connection, Instant::now());
        }
    }));
    let opened = match patience {
        None => told.await,
        Some((time, late)) => time::timeout(time, told).await.unwrap_or(Ok(Err(late))),
    };
    opened.unwrap_or(Err(ConnectError::here(&error::INTERNAL))) // it panicked
}

/// Opens a connection in a task of its own: others wait for it too, so neither an exchange that is canceled nor one with
/// little time left may cut it short.
fn open_shared(
    upstream: &Rc<LocalUpstream>,
    (endpoints, index): (Rc<[LocalEndpoint]>, usize),
    permit: Option<OwnedSemaphorePermit>,
) {
    let upstream = Rc::clone(upstream);
    let dialling = endpoints[index].pool.shared.begin_dialling();
    drop(tokio::task::spawn_local(async move {
        let at = &endpoints[index];
        match open(&upstream, at, permit, None).await {
            Ok(Opening { exclusive, connect, tls }) => {
                at.pool.shared.took.set((connect, tls));
                if let Some(connection) = exclusive {
                    at.pool.give(connection, Instant::now());
                }
            }
            Err(e) => dialling.fail(e),
        }
    }));
}

/// Waits for a place under the limit; without one, for ever.
async fn acquire(gate: Option<&Gate>) -> Option<OwnedSemaphorePermit> {
    match gate {
        Some(gate) => gate.acquire().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_telemetry::{Setup, Telemetry};

    /// One that could not be connected to, and that another request dials now.
    fn dialled() -> Arc<Health> {
        let cells = Telemetry::new(Setup::default()).endpoint("u", "e");
        let health = Health::new("u".into(), "e".into(), cells);
        let now = Instant::now();
        health.connect_failed(&error::CONNECT_REFUSED, now);
        assert!(health.may_dial(now + Duration::from_secs(1)) && health.is_being_dialled());
        health
    }

    /// Whether it came back, and how often it was looked at until then. `found` is what the other finds out during the third look.
    fn looked(health: &Health, found: fn(&Health)) -> (bool, u32) {
        let mut looks = 0;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let came = runtime.block_on(comes_back(health, async || {
            looks += 1;
            if looks == 3 {
                found(health);
            }
        }));
        (came, looks)
    }

    #[test]
    fn half_of_a_short_deadline_is_kept_for_another_endpoint() {
        let ms = Duration::from_millis;
        let patience = |left: Option<u64>, another, connect| {
            let left = left.map(|left| (ms(left), &error::EXCHANGE_TIMEOUT));
            let wanted = Wanted { fresh: false, once: false, end: None, another, owner: None };
            wanted
                .patience(left, ms(connect))
                .map(|(time, late)| (time.as_millis(), late.cause.code, late.elsewhere))
        };
        assert_eq!(patience(None, true, 300), None);
        assert_eq!(patience(Some(400), false, 3000), Some((400, "exchange_timeout", false)));
        assert_eq!(patience(Some(400), true, 3000), Some((200, "connect_timeout", true)));
        assert_eq!(patience(Some(400), true, 300), Some((200, "connect_timeout", true)));
        assert_eq!(patience(Some(400), false, 300), None, "the connect ends sooner");
        assert_eq!(patience(Some(400), true, 200), None);
    }

    #[test]
    fn a_place_is_waited_for_within_the_deadline() {
        let ms = Duration::from_millis;
        let patience = |left: Option<u64>| {
            let left = left.map(|left| (ms(left), &error::EXCHANGE_TIMEOUT));
            let (time, late) = patience_for_place(left, ms(300));
            (time.as_millis(), late.code)
        };
        assert_eq!(patience(None), (300, "pending_timeout"));
        assert_eq!(patience(Some(400)), (300, "pending_timeout"));
        assert_eq!(patience(Some(200)), (200, "exchange_timeout"));
    }

    #[test]
    fn an_endpoint_that_another_request_dials_is_waited_for() {
        assert_eq!(looked(&dialled(), |health| health.connected(Instant::now())), (true, 3));
        let fails = |health: &Health| health.connect_failed(&error::CONNECT_REFUSED, Instant::now());
        assert_eq!(looked(&dialled(), fails), (false, 3));
        assert_eq!(looked(&dialled(), |_| ()), (false, LOOKS), "not for ever");
        let failed = dialled();
        fails(&failed);
        assert_eq!(looked(&failed, |_| ()), (false, 0), "nobody dials it");
    }
}
