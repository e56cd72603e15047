"""Head banks: exact, fitted, for lags known at run time; the programmes that fit them."""
