"""What our HTTP servers share: authentication, errors, bodies, admission, disconnects, metrics."""
