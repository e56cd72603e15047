"""The curse of memory: how many states, window tokens or heads one memory kernel needs, architecture by architecture.

Setting. Tokens in [−1, 1], an infinite past, the target y_t = Σ_{s≥0} ρ(s) x_{t−s} with Σ|ρ(s)| < ∞; the error is the worst case over all
sequences. E(n) is the infimum of the error over a class of size n:

    rnn   h_t = W h_{t−1} + U x_t with m states, any real W (m×m) and U, read out by any function of h_t; linear: κ(s) = cᵀW^sU, s ≥ 0
    ssm   the same with a skip, any function of h_t and x_t; linear: κ(s) = cᵀW^sU + D·1{s=0}
    cnn   any function of the w tokens x_t, …, x_{t−w+1}; linear: κ(s) = 0 for s ≥ w
    lin   one dp-free layer with H heads of kernels e^{−ps}, the residual, any feed-forward network (law hankel)
    log   the same with kernels s^{−p}

Size n is m, w or H. A stack of L convolutions of k tokens is a cnn with w = 1 + L(k−1), and with w = k^L if layer l skips k^l tokens: its
size here is what it reaches. Parameters are the numbers that determine the κ of a linear network of the class, whatever the basis of its
states: 2m (rnn, a transfer function of degree m), 2m + 1 (ssm), w (cnn), 2H + 1 (lin, log: decays, weights, residual). Not covered:
softmax and dot products, recurrences whose W depends on tokens, and nonlinear ones: m real numbers without rounding can hold a whole past.

Statement. Least errors obey, for every size m, w ≥ 0,

    states     E_rnn(m) ≥ σ_{m+1}(ρ(i+j))_{i,j≥0}          E_ssm(m) ≥ σ_{m+1}(ρ(i+j+1))_{i,j≥0}                          (1)
    windows    E_cnn(w) = Σ_{s≥w} |ρ(s)|                                                                                  (2)
    nothing    E_ssm(0) = E_lin(0) = E_log(0) = Σ_{s≥1} |ρ(s)|,     E_rnn(0) = Σ_{s≥0} |ρ(s)|                              (3)
    order      E_ssm(m) ≤ E_rnn(m) ≤ E_ssm(m−1),     E_rnn(m) ≤ E_cnn(m),     E_ssm(m) ≤ min(E_lin(m), E_cnn(m+1))       (4)

Finite sections of the matrices have smaller singular values, so they bound E too. The skip decides which matrix counts: with one, ρ(0)
costs nothing and the matrix starts at ρ(1); it is the other one without its first row, hence never larger in σ_{m+1}. For heads see law
hankel. *Curse.* If ρ falls like a power, E_rnn(m) and E_ssm(m) are positive for every m, so that the states needed grow without end as
the error falls; windows grow like error^{−1/(q−1)} for ρ ~ s^{−q}; s^{−q} itself is one log head, whatever the error.

Proof. (1) With a skip: let N ≥ 1, and let dist be the ℓ¹ distance of (ρ(s))_{1≤s≤N} from the span of the m functions (W^sU)_k, k ≤ m. By
duality there are |δ_s| ≤ 1 with Σ_s δ_s W^sU = 0 and Σ_s δ_s ρ(s) = dist. The inputs x_{t−s} = ±δ_s for 1 ≤ s ≤ N and 0 elsewhere lead to
the same state h_t and have the same x_t = 0; every read-out answers both alike, while ±dist is wanted: the error is at least dist. An
element κ(s) = aᵀW^sU of the span has the Hankel matrix (κ(i+j+1)) = (aᵀW^i)(W^{j+1}U), of rank m at most. With d = κ − ρ the matrix
(d(i+j+1)), i + j < N, is Σ_s d(s) J_s, J_s the ones at i + j + 1 = s: a partial permutation, of norm 1. So ‖d‖₁ is at least its operator
norm, which by Eckart–Young–Mirsky is at least σ_{m+1}(ρ(i+j+1)). Without a skip x_t is one of the tokens that only the state sees: s runs
from 0, and i + j takes the place of i + j + 1. W need not be stable: tokens before t − N are 0. States that are updated after they are
read, h_t = Σ_{s≥1} W^{s−1}U x_{t−s}, have (aᵀW^i)(W^jU) in place of it: the same rank.

(2) Inputs that agree on the window and have x_{t−s} = ±sign ρ(s) for s ≥ w differ by 2 Σ_{s≥w}|ρ(s)| in what is wanted and not in the
answer, so one of them errs by half of that at least. Σ_{s<w} ρ(s) x_{t−s} errs by no more. (3) is (2) with w = 1, and w = 0.

(4) A state may be ignored, and so may a skip. A state with W = 0, U = 1 holds x_t, which replaces a skip. A delay line, W the shift of m
states, holds x_t, …, x_{t−m+1}; beside a skip, updated after it is read, x_{t−1}, …, x_{t−m}. Heads e^{−p_h s} are the states of W =
diag(e^{−p_h}), the residual is the skip.

*Curse.* If σ_{m+1} of all sections were 0, the matrix would have rank m at most and ρ would obey a linear recurrence (Kronecker): a sum
of terms s^k z^s, of which a summable one has |z| < 1 only and falls exponentially. The tail of s^{−q} is w^{1−q}/(q−1) to first order. ∎

Certificate. Singular values as in law hankel; (ρ(i+j)) is the matrix (ρ'(i+j+1)) of the delayed kernel ρ'(s) = ρ(s−1). Where ρ(0) is not
defined it counts as 0, and rnn is bounded by the matrix of ssm. Tails are closed sums, or term by term and then on blocks. From above:
fitted lin and log banks, realisations after Ho, Kalman and Kung with rational poles, delay lines, each with its ℓ¹ error in ball
arithmetic, infinite tail included.

References. Kronecker (1881); Adamyan, Arov & Krein, Math. USSR Sb. 15 (1971); Kung, Proc. 12th Asilomar Conf. (1978). Li, Han, E & Li,
On the Curse of Memory in Recurrent Neural Networks, ICLR 2021. Jiang, Li & Li, Approximation Theory of Convolutional Architectures for
Time Series Modelling, ICML 2021.
"""

from flint import arb

from analyzer.kernels.l1_norms import tail_of
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.limits.hankel import LowerBound, singular_lower_bound
from analyzer.numbers.exact import working_precision
from analyzer.statements.theorem import Theorem

ID = "curse-of-memory"
TITLE = "states, windows and heads that one kernel needs"
TAIL_BITS = 192
"""Precision of tails."""


def window_error(kernel: MemoryKernel, window: int) -> tuple[arb, arb]:
    """(2): both ends of Σ_{s≥w} |ρ(s)|, the least error of any function of the last w tokens."""
    with working_precision(TAIL_BITS):
        return tail_of(kernel, window)


def state_bound(kernel: MemoryKernel, states: int, skip: bool) -> LowerBound:
    """(1): what no m states can beat, with or without a skip."""
    shifted = singular_lower_bound(kernel, "lin", states)
    if skip or not kernel.at_zero:
        return shifted
    whole = singular_lower_bound(kernel.delayed(), "lin", states)
    return max(whole, shifted, key=lambda bound: bound.claim)


def parameters(architecture: str, size: int) -> int:
    """Numbers that determine the kernel of a linear network: 2m, 2m + 1, w or 2H + 1."""
    return {"rnn": 2 * size, "cnn": size}.get(architecture, 2 * size + 1)


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=26)
