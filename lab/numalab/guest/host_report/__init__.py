"""What a host of guests is, and how kvm mode fares on it, in one file that may be sent."""
