"""Black and Scholes' calls: their price, and the volatility that a price implies."""

from __future__ import annotations

import math

import mixad


def call_price(spot, strike, time, sigma):
    """Return the price of a European call without interest (Black and Scholes, 1973)."""
    root = sigma * math.sqrt(time)
    d1 = (math.log(spot / strike) + 0.5 * root * root) / root
    n1 = 0.5 + 0.5 * math.erf(d1 * 0.7071067811865476)
    n2 = 0.5 + 0.5 * math.erf((d1 - root) * 0.7071067811865476)
    return spot * n1 - strike * n2


def implied(price, spot, strike, time):
    """Return the volatility at which a call has a price: Newton's steps, kept in a bracket."""
    low, high = 0.001, 4.0
    sigma = 0.3
    for _ in range(40):
        root = sigma * math.sqrt(time)
        d1 = (math.log(spot / strike) + 0.5 * root * root) / root
        n1 = 0.5 + 0.5 * math.erf(d1 * 0.7071067811865476)
        n2 = 0.5 + 0.5 * math.erf((d1 - root) * 0.7071067811865476)
        difference = spot * n1 - strike * n2 - price
        if difference > 0.0:
            high = sigma
        else:
            low = sigma
        vega = spot * math.sqrt(time) * 0.3989422804014327 * math.exp(-0.5 * d1 * d1)
        sigma = sigma - difference / vega
        if not low <= sigma <= high:
            sigma = 0.5 * (low + high)
        if abs(difference) < 1e-9:
            break
    return sigma


def with_greeks(price, spot, strike, time, by_spot, by_time, by_sigma):
    """Return the implied volatility, and the price at it with some displacements, which are 0.

    Partials with respect to these are the Greeks: no dual number goes through the search.
    """
    sigma = mixad.stop_gradient(implied(price, spot, strike, time))
    return sigma, call_price(spot + by_spot, strike, time + by_time, sigma + by_sigma)
