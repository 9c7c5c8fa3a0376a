//! How to get a connection: from the pool, by waiting at the gate, or by dialing.

use super::connection::{ConnectError, Connection, Owner};
use super::endpoint::{Active, LocalEndpoint};
use super::gate::Gate;
use super::health::Health;
use super::local::{LocalUpstream, Waited};
use super::open::{Opening, Purpose, count_failed, no_streams, open};
use super::shared::{Room, SharedConnections};
use super::spec::Protocol;
use crate::error::{self, Cause};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use weir_wire::time;

/// A connection and how long it took.
pub struct Connected {
    pub connection: Connection,
    pub connect: Duration,
    pub tls: Duration,
}

/// The result of asking the pool.
enum Entered {
    /// The right to dial a connection; with a limit, its place under it.
    Dial(Option<OwnedSemaphorePermit>),
    /// A connection to the endpoint at which the attempt is now counted.
    Connected(Connected),
}

impl Entered {
    #[inline]
    fn pooled(connection: Connection) -> Self {
        Self::Connected(Connected { connection, connect: Duration::ZERO, tls: Duration::ZERO })
    }

    /// A stream; `dialled` says whether its connection was opened for it.
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
    /// Whether another endpoint can be tried if this one cannot be connected to.
    pub another: bool,
    /// The client, if the connection must be its own.
    pub owner: Option<Rc<Owner>>,
}

/// The rest of an exchange's time, and the cause once it is used up.
type Left = Option<(Duration, &'static Cause)>;

impl Wanted {
    #[inline]
    fn left(&self) -> Left {
        let (end, cause) = self.end?;
        Some((end.saturating_duration_since(Instant::now()), cause))
    }

    /// How long to wait for a connect that may take `connect` if the exchange's time is shorter, and the resulting
    /// error. If another endpoint remains to try, half of the exchange's time is kept for it.
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

/// How long to wait for a place under the connection limit, and the cause if none comes. As long as for a connect,
/// unless the exchange ends sooner.
#[inline]
fn patience_for_place(left: Left, connect: Duration) -> (Duration, &'static Cause) {
    left.filter(|(left, _)| *left < connect).unwrap_or((connect, &error::PENDING_TIMEOUT))
}

/// A pooled connection, or a stream of a shared one with ample room, without waiting: nearly every attempt gets one.
#[inline]
pub fn pooled(upstream: &LocalUpstream, active: &Active, wanted: &Wanted) -> Option<Connection> {
    if wanted.fresh {
        return None;
    }
    let pool = &active.get().pool;
    let is_shared = match upstream.spec.protocol {
        Protocol::FastCgi | Protocol::Http1 => false,
        Protocol::Negotiated => !pool.shared.chose_http1(),
        Protocol::Http2 => true,
    };
    let connection = match &wanted.owner {
        _ if is_shared => pool.shared.take(Room::Ample),
        None => pool.take(wanted.once),
        Some(owner) => pool.owned.take(owner, wanted.once),
    }?;
    if connection.reused {
        upstream.cells.reused.inc();
    }
    Some(connection)
}

/// A connection to the attempt's endpoint, pooled or new. Afterwards the attempt may be counted at another endpoint:
/// the one whose connection was handed over.
///
/// # Errors
/// Why there is no connection. A failed attempt is counted and logged.
pub async fn connect(
    upstream: &Rc<LocalUpstream>,
    active: &mut Active,
    wanted: Wanted,
) -> Result<Connected, ConnectError> {
    let entered = match upstream.spec.protocol {
        Protocol::FastCgi | Protocol::Http1 => enter_exclusive(upstream, active, &wanted).await?,
        Protocol::Negotiated if active.get().pool.shared.chose_http1() => {
            enter_exclusive(upstream, active, &wanted).await?
        }
        Protocol::Http2 | Protocol::Negotiated => Box::pin(enter_shared(upstream, active, &wanted)).await?,
    };
    match entered {
        Entered::Connected(connected) => Ok(connected),
        // Boxed: dialing is rare, and its future would enlarge that of every idle connection.
        Entered::Dial(permit) => {
            let at = active.get();
            if is_avoided(at) && !Box::pin(comes_back(&at.endpoint.health, look)).await {
                return Err(ConnectError::AVOIDED);
            }
            let Opening { exclusive, connect, tls } =
                Box::pin(open_exclusive(upstream, active, permit, wanted)).await?;
            // An endpoint that chose HTTP/1.1 before may choose HTTP/2 now.
            let connection = exclusive.or_else(|| at.pool.shared.take(Room::Any));
            let connection = connection.ok_or(ConnectError::here(&error::PENDING_TIMEOUT))?;
            Ok(Connected { connection, connect, tls })
        }
    }
}

/// Gets a connection that carries one exchange at a time.
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

/// Gets a stream of a shared connection: of one with ample room, else of a new one, else of any with room, else of
/// whichever is first to have one.
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
        // If an endpoint accepts no requests for now, it would not on another connection either.
        if !shared.is_dialling() && !shared.is_paused() {
            let at = active.get();
            avoided = is_avoided(at) && !Box::pin(comes_back(&at.endpoint.health, look)).await;
        }
        if !avoided && !shared.is_dialling() && !shared.is_paused() {
            // The idle connection closed for room belongs to another endpoint: one of this endpoint would have been
            // used.
            let permit = gate.map(|gate| upstream.enter(gate));
            if let None | Some(Some(_)) = &permit {
                dialled = true;
                open_shared(upstream, active.place(), permit.flatten());
            }
        }
        // A fresh stream waits for the connection being made, whoever started it.
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
        // While a connection is being made, the gate is not full: the upstream causes the wait.
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

/// Whether another endpoint than the attempt's is in rotation.
#[inline]
fn has_another(upstream: &LocalUpstream, active: &Active) -> bool {
    let (endpoints, index) = active.place();
    upstream.has_in_rotation(&endpoints, &std::iter::once(index).collect())
}

/// Whether an endpoint is unreachable and was dialed a moment ago.
#[inline]
pub(super) fn is_avoided(at: &LocalEndpoint) -> bool {
    let health = &at.endpoint.health;
    health.is_unreachable() && !health.may_dial(Instant::now())
}

/// How long a request waits for another request's dial to an unreachable endpoint, in [`LOOK`]s. If all endpoints are
/// dead, the client must get an answer within 50 ms.
const LOOKS: u32 = 25;
const LOOK: Duration = Duration::from_millis(1);

/// Whether an endpoint that another request is dialing becomes reachable. Used only if no other endpoint is left.
/// When one dies just after the others return, all requests find the others avoided at the same time, and only one
/// may dial.
pub(super) async fn comes_back(health: &Health, mut pause: impl AsyncFnMut()) -> bool {
    for _ in 0..LOOKS {
        if !health.is_being_dialled() {
            break;
        }
        pause().await;
    }
    !health.is_unreachable()
}

pub(super) async fn look() {
    time::sleep(LOOK).await;
}

/// Dials an endpoint that is out of rotation in the background. A connection is kept for the requests that follow.
#[inline]
pub(super) fn try_again(upstream: &Rc<LocalUpstream>, endpoints: &Rc<[LocalEndpoint]>, index: usize) {
    let at = &endpoints[index];
    if at.pool.shared.is_dialling() {
        return;
    }
    if at.pool.shared.is_paused() {
        // More connections would bring no streams either. The open one reports when it accepts requests again.
        return at.endpoint.health.connect_failed(&error::UPSTREAM_NO_STREAMS, Instant::now());
    }
    let permit = match &upstream.spec.gate {
        None => None,
        Some(gate) => match upstream.enter(gate) {
            Some(permit) => Some(permit),
            // All places are taken, perhaps for good. The next request that gets one finds out.
            None => return at.endpoint.health.connected(Instant::now()),
        },
    };
    open_shared(upstream, (Rc::clone(endpoints), index), permit);
}

/// Opens a connection for one request, which waits no longer than its own time allows.
///
/// The connect itself may take all of `timeouts.connect`. Only then is it known whether the endpoint is reachable,
/// whatever the request's deadline and even if its client leaves. So each core runs one connect at a time per
/// endpoint as a separate task that outlives the request; its connection is kept for the next one. Of many connects
/// that would time out, one is enough to find out.
async fn open_exclusive(
    upstream: &Rc<LocalUpstream>,
    active: &Active,
    permit: Option<OwnedSemaphorePermit>,
    wanted: Wanted,
) -> Result<Opening, ConnectError> {
    let at = active.get();
    let patience = wanted.patience(wanted.left(), upstream.spec.timeouts.connect);
    if at.pool.shared.is_dialling() {
        let opening = open(upstream, at, permit, wanted.owner.as_ref(), Purpose::Exchanges);
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
        let opened =
            open(&upstream, &endpoints[index], permit, wanted.owner.as_ref(), Purpose::Exchanges).await;
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

/// Opens a connection in a separate task. Others wait for it too, so a canceled exchange, or one with little time
/// left, must not cut it short.
fn open_shared(
    upstream: &Rc<LocalUpstream>,
    (endpoints, index): (Rc<[LocalEndpoint]>, usize),
    permit: Option<OwnedSemaphorePermit>,
) {
    let upstream = Rc::clone(upstream);
    let dialling = endpoints[index].pool.shared.begin_dialling();
    drop(tokio::task::spawn_local(async move {
        let at = &endpoints[index];
        match open(&upstream, at, permit, None, Purpose::Exchanges).await {
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

/// Waits for a place under the limit; without a limit, for ever.
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

    /// The health of an unreachable endpoint that another request is dialing.
    fn dialled() -> Arc<Health> {
        let cells = Telemetry::new(Setup::default()).endpoint("u", "e");
        let health = Health::new("u".into(), "e".into(), cells);
        let now = Instant::now();
        health.connect_failed(&error::CONNECT_REFUSED, now);
        assert!(health.may_dial(now + Duration::from_secs(1)) && health.is_being_dialled());
        health
    }

    /// Whether the endpoint came back, and after how many looks. `found` is what the other request finds during the
    /// third look.
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
