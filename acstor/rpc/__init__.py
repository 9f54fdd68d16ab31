"""Messages between the control processes over oslo.messaging."""
